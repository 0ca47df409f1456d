//! The deny file of the process is in force for the components of all tenants.

use std::fs;

use annex_test_support::{TEST_EXTENSION, until};
use serde_json::{Value, json};

use super::added::{ADMIN, add, ask, code, reason};
use super::{agent, call, files, message, serve};
use crate::auth::{ADA, api_keys};
use crate::denied::digest;
use crate::installation::marked;

#[tokio::test]
async fn a_denied_component_is_out_of_service_for_tenants_of_files_and_added_ones() {
    let denying = "[trust]\ndefault = \"allow\"\ndeny_file = \"denied.txt\"\n[tenants]\ncomponents = [\"x.wasm\"]\n";
    let of_acme = "[[extension]]\ncomponent = \"../x.wasm\"";
    let folder = files(&format!("{ADMIN}{}\n{denying}", api_keys()), "", of_acme);
    fs::write(folder.path().join("x.wasm"), marked("x")).expect("a file");
    let deny = |list: &str| fs::write(folder.path().join("denied.txt"), list).expect("a file");
    deny("");
    let server = serve(&folder).await;
    let text = agent("hooli", &format!("[[extension]]\ncomponent = {:?}", digest("x")));
    add(&server, "hooli", &text).await;
    let say = async |tenant: &str| call(&server, ADA, TEST_EXTENSION, "SendMessage", message(tenant, "x")).await;
    let runs = |body: &Value| body["result"]["task"]["artifacts"][0]["extensions"] == json!([TEST_EXTENSION]);
    for tenant in ["acme", "hooli"] {
        assert!(runs(&say(tenant).await), "{tenant}");
    }
    deny(&digest("x"));
    for tenant in ["acme", "hooli"] {
        until("messages to be refused", async || *code(&say(tenant).await) == json!(-32_000)).await;
        assert!(reason(&say(tenant).await).contains("out of service"), "{tenant}");
    }
    let fields = [("if-none-match", "*")];
    let (status, refused, _) = ask(&server, "PUT", "tenants/other", &fields, json!({"config": text})).await;
    assert_eq!(status, 422, "{refused}");
    assert!(reason(&refused).contains("denies its component"), "{refused}");
    deny("");
    for tenant in ["acme", "hooli"] {
        until("messages to be accepted", async || runs(&say(tenant).await)).await;
    }
}
