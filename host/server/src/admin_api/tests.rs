use serde::Serialize;
use serde::de::DeserializeOwned;

use super::extensions::{Details, List, Log, ReloadResult, RemovedExtension};
use super::usage::{Costliest, TenantUsage};
use super::{Addition, Refusal, Rollback, components, replicas, requests, sessions};

const SUMMARY: &str = r#""uri":"uri:x","name":"X","component_version":"1.0.0","version":3,"digest":"sha256:0","size":10,"required":false,"activate":"always","allow":["principal:ada"],"reads":"active","source":{"kind":"added","name":"x","until":"restart"},"hooks":["state"],"methods":[],"loaded_at":"t","kept":1,"pinned_tasks":0,"on_failure":"reject","calls":2,"refused":1,"failures":1,"last_failure":{"at":"t","hook":"state","outcome":"trap","reason":"r"},"timings":[{"hook":"state","calls":2,"refused":1,"failures":1,"mean_ms":0.5,"p99_ms":0.75,"max_ms":1.0,"cpu_ms":0.25}],"memory_peak":65536,"quarantine":{"next_trial_ms":7,"failures_in_a_row":3,"count":1,"revoked":"r"}"#;
const GRANTS: &str = r#"{"clock":false,"random":false,"http":null,"keyvalue":null,"secrets":{},"session-state":null,"task":false,"tasks":false,"task-resumption":false,"agent-steps":false,"caller":null,"task-metadata":false,"forget-metadata":false,"rewrite-message":false,"rewrite-answer":false,"answer":false,"reads":false,"live-card":null}"#;
const LIMITS: &str = r#"{"memory_mib":1,"table_elements":2,"cpu_ms":3,"turn_cpu_ms":4,"wall_ms":5,"turn_wall_ms":6,"host_calls":7,"input_bytes":8,"output_bytes":9,"log_lines":10,"log_bytes":11,"turns":12}"#;

/// Checks that reading and writing JSON gives the same JSON.
fn check<T: DeserializeOwned + Serialize>(json: &str) {
    let read: T = serde_json::from_str(json).expect(json);
    assert_eq!(serde_json::to_string(&read).expect("JSON"), json);
}

#[test]
fn answers_about_extensions_are_read_as_they_are_written() {
    check::<List>(&format!(
        r#"{{"edition":1,"extensions":[{{{SUMMARY}}}],"failures":[{{"source":"s","reason":"r","at":"t"}}],"tenants":["a"]}}"#
    ));
    check::<List>(r#"{"edition":1,"extensions":[],"failures":[]}"#);
    check::<Details>(&format!(
        r#"{{{SUMMARY},"edition":1,"description":"d","metadata_keys":["k"],"depends_on":[],"grants":{GRANTS},"limits":{LIMITS},"load_ms":1.5,"compiled":true,"live_card":{{"declared_at":"t","seconds":60,"failed_at":"t","error":"e"}},"kept_versions":[{{"version":1,"digest":"sha256:1","size":9,"grants":{GRANTS},"loaded_at":"t","pinned_tasks":0}}],"changes":[{{"at":"t","edition":1,"change":"added","from":null,"to":3}}]}}"#
    ));
    check::<Log>(
        r#"{"uri":"uri:x","lines":[{"at":"t","level":"info","context":"c","message":"m","hook":"h","task_id":"t","context_id":"c","error_id":"e"},{"at":"t","level":"warn","message":"m","hook":"h","error_id":"e"}]}"#,
    );
    check::<RemovedExtension>(r#"{"removed":"uri:x","version":1,"digest":"sha256:0","edition":2,"until":"restart"}"#);
    check::<ReloadResult>(
        r#"{"changed":true,"edition":2,"extensions_changed":false,"changed_keys":["server.max_streams"],"needs_restart":["server.listen (the address is taken at the start)"],"failed":[]}"#,
    );
}

#[test]
fn answers_about_sessions_are_read_as_they_are_written() {
    let session = r#""context":"c","user":"u""#;
    check::<sessions::List>(&format!(
        r#"{{"sessions":[{{{session},"revision":1,"last_update":"t","keys":["k"]}}],"next":"n"}}"#
    ));
    for tenant in ["", r#","tenant":"t""#] {
        check::<sessions::Session>(&format!(
            r#"{{{session},"agent":"a"{tenant},"revision":1,"last_update":"t","state":{{"b":1.0,"a":9007199254740993}}}}"#
        ));
    }
    check::<sessions::Events>(
        r#"{"events":[{"id":"i","author":"user","task":"t","timestamp":"t","parts":[{"data":{"b":1.0},"metadata":{"m":null}}],"state_delta":{"k":[]},"error":{"code":"c","message":"m"}},{"id":"j","author":"a","task":"t","timestamp":"t","parts":[]}]}"#,
    );
    check::<sessions::DeletedSession>(r#"{"deleted":"c","user":"u"}"#);
    check::<sessions::SharedState>(r#"{"agent":"a","user":"u","state":{"app:b":1.0}}"#);
    check::<sessions::SharedState>(r#"{"agent":"a","state":{}}"#);
    check::<sessions::KeysToDelete>(r#"{"keys":["app:a"],"user":"u","context":"c"}"#);
    check::<sessions::DeletedKeys>(r#"{"deleted":["app:a"],"missing":[]}"#);
    check::<sessions::DeletedUserState>(r#"{"user":"u","keys":2}"#);
}

#[test]
fn answers_about_requests_are_read_as_they_are_written() {
    let request = r#""number":1,"ended":"t","operation":"SendMessage","outcome":"failed","reason":"fault","tenant":"t","caller":"ada","address":"127.0.0.1","binding":"JSONRPC","version":"1.0","method":"m","context":"c","task":"t","extensions":"uri:x","extension":"uri:x","quota":"turns","error_id":"e","trace_id":"i","status":200,"bytes_in":1,"bytes_out":2,"ms":1.5,"hooks_ms":0.5,"agent_ms":0.0,"store_ms":0.0"#;
    check::<requests::List>(&format!(r#"{{"requests":[{{{request}}}]}}"#));
    check::<requests::Details>(&format!(
        r#"{{{request},"cause":"c","work":[{{"kind":"hook","what":"state","name":"uri:x","verdict":"ok","start_us":1,"us":2,"cpu_us":3,"input_tokens":4,"output_tokens":5}},{{"kind":"store","start_us":0,"us":0}}],"work_left_out":6}}"#
    ));
}

#[test]
fn an_answer_about_usage_is_read_as_it_is_written() {
    let here = r#"{"used":1,"counted_in":"process"}"#;
    let all = r#"{"used":1,"limit":2,"counted_in":"all"}"#;
    check::<TenantUsage>(&format!(
        r#"{{"tenant":"a","processes":1,"requests_per_second":{here},"cpu_ms_per_second":{here},"turns":{all},"sessions":{all},"state_bytes":{all},"tasks":{all},"keys":{all},"tokens_per_day":{all},"last_day":{{"requests":4,"refused":3,"cpu_ms":2,"tokens":1}}}}"#
    ));
    check::<Costliest>(r#"{"hours":24,"tenants":[{"tenant":"a","requests":4,"refused":3,"cpu_ms":2,"tokens":1}]}"#);
}

#[test]
fn answers_about_replicas_and_uploads_are_read_as_they_are_written() {
    check::<replicas::List>(
        r#"{"replicas":[{"id":"i","name":"n","answers":true,"since":"t","version":"1.0.0","address":"http://a","phase":"ready","lease_left_ms":-1},{"answers":true}]}"#,
    );
    let component = r#"{"digest":"sha256:0","size":1,"uploaded_at":"t"}"#;
    check::<components::List>(&format!(r#"{{"components":[{component}],"max_uploads":2,"max_upload_bytes":3}}"#));
    check::<components::Component>(r#"{"digest":"sha256:0","size":1}"#);
    check::<components::RemovedComponent>(r#"{"removed":"sha256:0"}"#);
}

#[test]
fn requests_and_refusals_are_read_as_they_are_written() {
    check::<Addition>(r#"{"name":"n","component":"AA==","settings":"[grants]"}"#);
    check::<Addition>(r#"{"name":"n","component":"AA=="}"#);
    check::<Addition>(r#"{"reference":"oci://registry.example/a:1","settings":"[grants]"}"#);
    check::<Rollback>(r#"{"to":2}"#);
    check::<Rollback>(r#"{"to":null}"#);
    check::<Refusal>(r#"{"error":{"code":"no_tenant","message":"m"}}"#);
}

#[test]
fn answers_are_read_without_the_fields_that_the_command_does_not_show() {
    let extension = r#"{"uri":"u","version":1,"digest":"d","size":1,"required":true,"source":{"kind":"config","name":"n"},"loaded_at":"t","kept":0,"pinned_tasks":0,"calls":0,"refused":0,"failures":0,"last_failure":null,"timings":[],"quarantine":{"failures_in_a_row":0}}"#;
    let list = format!(r#"{{"edition":1,"extensions":[{extension}],"failures":[]}}"#);
    serde_json::from_str::<List>(&list).expect("a list");
    serde_json::from_str::<Log>(r#"{"lines":[]}"#).expect("a log");
    serde_json::from_str::<RemovedExtension>(r#"{"removed":"u","edition":1}"#).expect("what was removed");
    let event = r#"{"author":"a","task":"t","timestamp":"t","parts":[{"text":"x"}]}"#;
    serde_json::from_str::<sessions::Events>(&format!(r#"{{"events":[{event}]}}"#)).expect("events");
    serde_json::from_str::<Refusal>(r#"{"error":{"message":"m"}}"#).expect("a refusal");
}
