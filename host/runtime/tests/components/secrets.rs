//! Secrets and tasks are visible only to extensions with the grant.

use annex_protocol::{JsonObject, Secret};
use annex_runtime::LoadError;

use crate::capabilities::{capable, load, results};
use crate::support::{component, log_of, refused, runtime};

#[tokio::test]
async fn a_secret_is_readable_by_name() {
    let extension = load(&runtime(), capable()).await;
    let commands = r#"{"secret": "API_KEY"}, {"secret": "OTHER"}, {"secret": "uri"}"#;
    assert_eq!(results(&extension, commands).await, ["hunter2-hunter2", "none", "none"]);
}

#[tokio::test]
async fn listings_of_parameters_leave_secrets_out() {
    let mut installation = capable();
    installation.parameters = JsonObject::parse(r#"{"uri": "https://annex.example/x/v1"}"#).expect("an object");
    let extension = load(&runtime(), installation).await;
    for listing in results(&extension, r#""config", {"secret": "annex:parameters"}"#).await {
        assert!(listing.contains("annex.example/x/v1") && !listing.contains("API_KEY"), "{listing}");
        assert!(!listing.contains("hunter2"), "{listing}");
    }
}

#[tokio::test]
async fn secrets_are_in_no_log_and_in_no_debug_form() {
    let installation = capable();
    let mut shown = format!("{installation:?}");
    let log = log_of(Box::pin(async {
        let extension = load(&runtime(), installation).await;
        let commands = r#"{"print": ["key=hunter2-hunter2"]}, {"complain": "hunter2-hunter2"}"#;
        assert_eq!(results(&extension, commands).await, ["ok", "ok"]);
        shown.push_str(&format!("{extension:?}{:?}{:?}", extension.descriptor(), extension.card()));
    }))
    .await;
    assert!(log.contains("key=(secret)"), "{log}");
    assert!(!log.contains("hunter2") && !shown.contains("hunter2"), "{log}\n{shown}");
}

#[tokio::test]
async fn a_secret_that_lies_across_the_end_of_a_line_is_hidden_too() {
    let log = log_of(Box::pin(async {
        let extension = load(&runtime(), capable()).await;
        let secret = "hunter2-hunter2";
        for (before, times) in [(4 * 1024 - 8, 1), (4 * 1024 - 40, 3), (4 * 1024 - 30, 2)] {
            let line = "x".repeat(before) + &secret.repeat(times);
            assert_eq!(results(&extension, &format!(r#"{{"print": ["{line}"]}}"#)).await, ["ok"]);
        }
    }))
    .await;
    assert!(log.contains("xxxx") && !log.contains("hunt"), "{log}");
}

#[tokio::test]
async fn a_secret_with_the_name_of_a_parameter_is_refused() {
    let mut installation = capable();
    installation.grants.secrets.insert("uri".to_owned(), Secret::new("x"));
    installation.parameters = JsonObject::parse(r#"{"uri": "https://annex.example/x/v1"}"#).expect("an object");
    let error = refused(component(annex_components::TEST_CAPABILITIES), installation).await;
    assert!(matches!(&error, LoadError::SharedName { name } if name == "uri"), "{error:?}");
}
