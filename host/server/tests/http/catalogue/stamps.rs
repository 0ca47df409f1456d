use serde_json::Value;

use crate::catalogue::catalogue;

#[tokio::test]
async fn the_timestamp_is_served_under_the_uri_of_the_code_and_under_that_of_the_specification() {
    let server = catalogue().await;
    for path in ["github.com/a2aproject/a2a-samples/extensions", "github.com/a2aproject/a2a-samples/samples/extensions"]
    {
        let uri = format!("https://{path}/timestamp/v1");
        let reply = server.say("hello").extensions(&uri).send().await.expect("a reply");
        assert_eq!(reply.extensions.as_deref(), Some(uri.as_str()));
        let artifact = &reply.task()["artifacts"][0];
        assert!(artifact["metadata"][format!("{path}/timestamp/v1/timestamp")].is_string(), "{artifact}");
        assert_eq!(artifact["metadata"].as_object().map(serde_json::Map::len), Some(1));
        assert_eq!(artifact["extensions"], Value::from(vec![uri]));
    }
}
