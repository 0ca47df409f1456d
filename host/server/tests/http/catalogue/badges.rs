use crate::catalogue::{catalogue, declaration, refusal};

const URI: &str = "https://annex.example/compliance-badge/v1";

#[tokio::test]
async fn the_card_shows_the_badges() {
    let server = catalogue().await;
    let entry = declaration(&server, URI).await;
    let badges = &entry["params"]["badges"];
    assert_eq!(badges[0]["standard"], "ISO/IEC 27001:2022");
    assert_eq!(badges[0]["validUntil"], "2027-12-31");
    assert_eq!(badges[1]["issuer"], "self-declared");
    assert!(badges[1].get("validUntil").is_none() && entry["required"] != true, "{entry}");
}

#[tokio::test]
async fn a_request_may_activate_it_and_nothing_comes_of_it() {
    let server = catalogue().await;
    let reply = server.say("hello").extensions(URI).send().await.expect("a reply");
    assert_eq!((reply.answer(), reply.extensions.as_deref()), ("Done.", Some(URI)));
}

#[tokio::test]
async fn a_badge_that_is_wrong_keeps_the_server_from_starting() {
    let badge = |fields: &str| format!("component = \"compliance-badge\"\n[[extension.parameters.badges]]\n{fields}");
    let good = "standard = \"s\"\nlevel = \"l\"\nissuer = \"i\"\n";
    let cases = [
        ("component = \"compliance-badge\"".to_owned(), "badges"),
        (badge("standard = \"s\"\nlevel = \"l\""), "issuer"),
        (badge(&format!("{good}valid_until = \"next year\"")), "valid_until"),
        (badge(&format!("{good}colour = \"gold\"")), "colour"),
    ];
    for (config, named) in cases {
        let error = refusal(&config).await;
        assert!(error.contains(named), "{named}: {error}");
    }
}
