//! More tenants than anybody looks at one by one.

use std::fmt::Write as _;
use std::fs;

use annex_test_support::{TEST_EXTENSION, TestServer};
use serde_json::json;
use tempfile::TempDir;

use super::{agent, call, message, serve};
use crate::installation::TOKEN;
use crate::metrics::scrape;

/// This many tenants, named `t-0` and so on, which share one file with the test extension.
fn files(tenants: usize) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let component = annex_test_support::component("test-extension");
    let write = |name: &str, text: String| fs::write(folder.path().join(name), text).expect("a file");
    let mut config = "[runtime]\nwatch = false\n[admin]\ntoken_file = \"token\"\n".to_owned();
    for number in 0..tenants {
        write!(config, "[[tenant]]\nname = \"t-{number}\"\nconfig = \"tenant.toml\"\n").expect("a text");
    }
    write("token", TOKEN.to_owned());
    write("annex.toml", agent("main", &config));
    write("tenant.toml", agent("tenant", &format!("[[extension]]\ncomponent = {component:?}\n")));
    folder
}

async fn say(server: &TestServer, tenant: &str) {
    let body = call(server, "", TEST_EXTENSION, "SendMessage", message(tenant, "x")).await;
    assert_eq!(body["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{body}");
}

#[tokio::test]
async fn metrics_have_the_busiest_tenants_without_zeros_and_the_totals_of_all() {
    const TENANTS: usize = 60;
    let folder = files(TENANTS);
    let server = serve(&folder).await;
    // The last ones by name: without calls the first ones are shown.
    for tenant in ["t-8", "t-9", "t-9"] {
        say(&server, tenant).await;
    }
    let page = scrape(&server).await;
    let shown = page.values_of("tenant");
    assert_eq!(shown.len(), 50);
    assert!(shown.contains("t-8") && shown.contains("t-9") && !shown.contains("t-7"), "{shown:?}");
    assert!(page.zeros_with("tenant").is_empty(), "{:?}", page.zeros_with("tenant"));
    let of_busiest = [("tenant", "t-9"), ("extension", TEST_EXTENSION), ("hook", "state"), ("outcome", "ok")];
    assert_eq!(page.value("annex_hook_calls_total", &of_busiest), 2.0);
    assert_eq!(page.value("annex_all_hook_calls_total", &[("hook", "state"), ("outcome", "ok")]), 3.0);
    assert!(page.value("annex_all_hook_busy_seconds_total", &[("hook", "state")]) > 0.0);
    let idle = [("tenant", "t-10"), ("extension", TEST_EXTENSION)];
    assert!(
        !page.has("annex_extension_host_calls_total", &idle) && !page.has("annex_hook_duration_seconds_count", &idle)
    );
    let (_, reply) = crate::installation::admin(&server, "GET", "extensions?tenant=t-7", json!(null)).await;
    assert_eq!(reply["extensions"][0]["calls"], 0, "those that are not shown are in the admin API");
}
