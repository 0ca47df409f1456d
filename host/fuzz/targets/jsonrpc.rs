//! Bytes of a request's body into the JSON-RPC decoder and the parameters of every method, of A2A 1.0 and 0.3. An
//! accepted value must be written as JSON that reads as an equal value.

#![no_main]

use std::fmt::Debug;

use annex_protocol::jsonrpc::{self, RequestId};
use annex_protocol::{
    A2aError, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetTaskPushNotificationConfigRequest,
    GetTaskRequest, Json, ListTaskPushNotificationConfigsRequest, ListTasksRequest, SendMessageRequest,
    SubscribeToTaskRequest, TaskPushNotificationConfig, v0_3,
};
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

fn read<T: DeserializeOwned + Serialize + PartialEq + Debug>(params: &Json) -> Option<T> {
    let request: T = jsonrpc::params(params.get()).inspect_err(check_error).ok()?;
    let written = serde_json::to_string(&request).expect("JSON");
    // Compared as text: base64 is written in the standard alphabet, whichever one it came in.
    let again = serde_json::from_str::<T>(&written).expect("what was written is read");
    assert_eq!(serde_json::to_string(&again).expect("JSON"), written);
    Some(request)
}

/// An error must be an answer that a client can read.
fn check_error(error: &A2aError) {
    let answer: Value = serde_json::from_str(&jsonrpc::failure(&RequestId::Null, error)).expect("JSON");
    assert!(answer["error"]["code"].is_i64());
}

fn check<T>(result: Result<T, A2aError>) {
    if let Err(error) = result {
        check_error(&error);
    }
}

fn check_params(method: &str, params: &Json) {
    match method {
        "SendMessage" => check(read::<SendMessageRequest>(params).map_or(Ok(()), |request| request.validate())),
        "GetTask" => check(read::<GetTaskRequest>(params).map_or(Ok(()), |request| request.validate())),
        "ListTasks" => check(read::<ListTasksRequest>(params).map_or(Ok(()), |request| request.validate())),
        "CancelTask" => check(read::<CancelTaskRequest>(params).map_or(Ok(()), |request| request.validate())),
        "SubscribeToTask" => drop(read::<SubscribeToTaskRequest>(params)),
        "CreateTaskPushNotificationConfig" => drop(read::<TaskPushNotificationConfig>(params)),
        "GetTaskPushNotificationConfig" => drop(read::<GetTaskPushNotificationConfigRequest>(params)),
        "ListTaskPushNotificationConfigs" => drop(read::<ListTaskPushNotificationConfigsRequest>(params)),
        "DeleteTaskPushNotificationConfig" => drop(read::<DeleteTaskPushNotificationConfigRequest>(params)),
        "message/send" => check_0_3(params),
        "tasks/get" => check(v0_3::request::get_task(params)),
        "tasks/cancel" => check(v0_3::request::cancel_task(params)),
        "tasks/resubscribe" => check(v0_3::request::subscribe_to_task(params)),
        "tasks/pushNotificationConfig/set" => check(v0_3::request::create_push_config(params)),
        "tasks/pushNotificationConfig/get" => check(v0_3::request::get_push_config(params)),
        "tasks/pushNotificationConfig/list" => check(v0_3::request::list_push_configs(params)),
        "tasks/pushNotificationConfig/delete" => check(v0_3::request::delete_push_config(params)),
        _ => {}
    }
}

/// A message of 0.3 becomes one of 1.0, which can be written in both.
fn check_0_3(params: &Json) {
    match v0_3::request::send_message(params) {
        Err(error) => check_error(&error),
        Ok(request) => {
            check(request.validate());
            serde_json::to_string(&v0_3::Message::from(&request.message)).expect("JSON");
            let written = serde_json::to_string(&request).expect("JSON");
            let again: SendMessageRequest = serde_json::from_str(&written).expect("a request");
            assert_eq!(serde_json::to_string(&again).expect("JSON"), written);
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    match jsonrpc::decode(bytes) {
        Err(rejection) => check_error(&rejection.error),
        Ok(request) => {
            let params = request.params_json().expect("checked parameters");
            let answer = jsonrpc::success_raw(&request.id, params.get());
            assert!(!answer.contains(['\n', '\r']), "the answer breaks the line of an event stream");
            serde_json::from_str::<&serde_json::value::RawValue>(&answer).expect("JSON");
            check_params(&request.method, &params);
        }
    }
});
