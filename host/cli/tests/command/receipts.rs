//! `annex receipt verify`, on the task of a real server.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::support::{Run, Server, run, template_agent};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../auth/tests/auth/fixtures");

fn verify(files: &[&Path], key: &str) -> Result<Run> {
    let mut arguments: Vec<String> = vec!["receipt".to_owned(), "verify".to_owned()];
    arguments.extend(files.iter().map(|file| file.display().to_string()));
    arguments.extend(["--key".to_owned(), format!("{FIXTURES}/{key}")]);
    run(arguments)
}

/// The task of a message to the server, in the JSON of GetTask. `None` if the message was refused.
async fn task(server: &Server, id: &str, text: &str) -> Result<Option<Value>> {
    let message = json!({"message": {"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]}});
    let request = reqwest::Client::new().post(format!("{}/a2a/rest/message:send", server.url));
    let request = request.header("content-type", "application/json").header("A2A-Version", "1.0");
    let sent: Value = serde_json::from_str(&request.body(message.to_string()).send().await?.text().await?)?;
    Ok(sent.get("task").cloned())
}

/// The tables of a config that signs receipts.
fn signing() -> String {
    format!("[card.signing]\nkid = \"p256\"\nkey_file = \"{FIXTURES}/p256.pem\"\n[receipts]\n")
}

#[tokio::test]
async fn a_task_of_a_server_verifies_and_a_changed_one_is_shown_with_what_differs() -> Result<()> {
    // Fails only when a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = Server::start(&template_agent("Say something.", &signing()))?;
    let task = task(&server, "m-1", "Hello").await?.context("a task")?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("task.json");
    fs::write(&file, task.to_string())?;
    for key in ["jwks.json", "p256.pub.pem"] {
        let verified = verify(&[file.as_path()], key)?;
        assert_eq!(verified.code, Some(0), "{}", verified.err);
        assert!(verified.out.starts_with("receipt 1 of context "), "{}", verified.out);
        assert!(
            verified.out.contains("TASK_STATE_COMPLETED") && verified.out.contains("Test agent"),
            "{}",
            verified.out
        );
    }
    let other_key = verify(&[file.as_path()], "ed25519.pub.pem")?;
    assert_eq!(other_key.code, Some(3), "{}", other_key.err);
    assert!(
        other_key.err.contains("none of the given keys has the id \"p256\" of the receipt's key"),
        "{}",
        other_key.err
    );

    fs::write(&file, task.to_string().replace("nothing matched", "something else"))?;
    let changed = verify(&[file.as_path()], "jwks.json")?;
    assert_eq!(changed.code, Some(3), "{}", changed.err);
    assert!(changed.err.contains("not as the receipts say") && changed.err.contains("of receipt 1"), "{}", changed.err);

    fs::write(&file, "{}")?;
    let nothing = verify(&[file.as_path()], "jwks.json")?;
    assert_eq!(nothing.code, Some(1), "{}", nothing.err);
    assert!(nothing.err.contains("it has no task"), "{}", nothing.err);
    Ok(())
}
