//! The rules that the types cannot express: required fields, ranges and base64.
//!
//! All violations of a request are collected, so that a client's developer sees all violations at once.

use crate::base64::is_base64;
use crate::{
    A2aError, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, FieldViolation,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest, ListTasksRequest,
    Message, PartContent, Role, SendMessageConfiguration, SendMessageRequest, SubscribeToTaskRequest,
    TaskPushNotificationConfig,
};

/// The maximum number of violations that are reported. A request may have thousands, and no developer reads that many.
const MAX_VIOLATIONS: usize = 20;

#[derive(Default)]
struct Violations(Vec<FieldViolation>);

impl Violations {
    fn unless(&mut self, holds: bool, field: impl Into<String>, description: &str) {
        if !holds && self.0.len() < MAX_VIOLATIONS {
            self.0.push(FieldViolation { field: field.into(), description: description.to_owned() });
        }
    }

    fn require(&mut self, value: &str, field: impl Into<String>) {
        self.unless(!value.is_empty(), field, "is required");
    }

    fn check_history_length(&mut self, history_length: Option<i32>, field: &str) {
        self.unless(history_length.is_none_or(|length| length >= 0), field, "must not be negative");
    }

    fn finish(self) -> Result<(), A2aError> {
        if self.0.is_empty() { Ok(()) } else { Err(A2aError::InvalidParams { violations: self.0 }) }
    }
}

impl SendMessageRequest {
    /// Checks the message and the configuration.
    ///
    /// # Errors
    /// [`A2aError::InvalidParams`] with a violation per field.
    pub fn validate(&self) -> Result<(), A2aError> {
        let mut violations = Violations::default();
        // A missing message gets one violation, not one for each of its fields.
        if self.message == Message::default() {
            let description = "is required, with messageId, role ROLE_USER and at least one part";
            violations.unless(false, "message", description);
        } else {
            check_message(&self.message, &mut violations);
        }
        check_configuration(&self.configuration, &mut violations);
        violations.finish()
    }
}

fn check_message(message: &Message, violations: &mut Violations) {
    violations.require(message.message_id.as_str(), "message.messageId");
    // A client that could send ROLE_AGENT would write the agent's part of the history.
    violations.unless(message.role == Role::User, "message.role", "must be ROLE_USER");
    violations.unless(!message.parts.is_empty(), "message.parts", "must have at least one part");
    for (index, part) in message.parts.iter().enumerate() {
        if let PartContent::Raw(raw) = &part.content {
            // Only the form is checked. The bytes are not needed here, and decoding them would nearly double the
            // memory of a large file.
            violations.unless(is_base64(raw), format!("message.parts[{index}].raw"), "is not base64");
        }
    }
}

fn check_configuration(configuration: &SendMessageConfiguration, violations: &mut Violations) {
    violations.check_history_length(configuration.history_length, "configuration.historyLength");
    if let Some(config) = &configuration.task_push_notification_config {
        check_push_config(config, "configuration.taskPushNotificationConfig.", violations);
    }
}

fn check_push_config(config: &TaskPushNotificationConfig, prefix: &str, violations: &mut Violations) {
    violations.require(&config.url, format!("{prefix}url"));
    if let Some(authentication) = &config.authentication {
        violations.require(&authentication.scheme, format!("{prefix}authentication.scheme"));
    }
}

impl GetTaskRequest {
    /// Checks the presence of an id, and that the history length is not negative.
    ///
    /// # Errors
    /// [`A2aError::InvalidParams`] with a violation per field.
    pub fn validate(&self) -> Result<(), A2aError> {
        let mut violations = Violations::default();
        violations.require(self.id.as_str(), "id");
        violations.check_history_length(self.history_length, "historyLength");
        violations.finish()
    }
}

impl ListTasksRequest {
    /// Checks that the page size is 1 to 100 and that the history length is not negative.
    ///
    /// # Errors
    /// [`A2aError::InvalidParams`] with a violation per field.
    pub fn validate(&self) -> Result<(), A2aError> {
        let mut violations = Violations::default();
        // Section 3.1.4 allows 1 to 100. Here the field is optional, so that 0 is a wrong number and not an absent one.
        let page_size_fits = self.page_size.is_none_or(|size| (1..=100).contains(&size));
        violations.unless(page_size_fits, "pageSize", "must be between 1 and 100");
        violations.check_history_length(self.history_length, "historyLength");
        violations.finish()
    }
}

impl CancelTaskRequest {
    /// Checks the presence of an id.
    ///
    /// # Errors
    /// [`A2aError::InvalidParams`] with a violation per field.
    pub fn validate(&self) -> Result<(), A2aError> {
        let mut violations = Violations::default();
        violations.require(self.id.as_str(), "id");
        violations.finish()
    }
}

impl SubscribeToTaskRequest {
    /// Checks the presence of an id.
    ///
    /// # Errors
    /// [`A2aError::InvalidParams`] with a violation per field.
    pub fn validate(&self) -> Result<(), A2aError> {
        let mut violations = Violations::default();
        violations.require(self.id.as_str(), "id");
        violations.finish()
    }
}

impl TaskPushNotificationConfig {
    /// Checks the config as the request of CreateTaskPushNotificationConfig: task, URL and scheme.
    ///
    /// # Errors
    /// [`A2aError::InvalidParams`] with a violation per field.
    pub fn validate(&self) -> Result<(), A2aError> {
        let mut violations = Violations::default();
        // Inside SendMessage the config has no task yet, so only this operation asks for one.
        violations.unless(self.task_id.is_some(), "taskId", "is required");
        check_push_config(self, "", &mut violations);
        violations.finish()
    }
}

impl GetTaskPushNotificationConfigRequest {
    /// Checks the presence of a task and an id.
    ///
    /// # Errors
    /// [`A2aError::InvalidParams`] with a violation per field.
    pub fn validate(&self) -> Result<(), A2aError> {
        let mut violations = Violations::default();
        violations.require(self.task_id.as_str(), "taskId");
        violations.require(&self.id, "id");
        violations.finish()
    }
}

impl ListTaskPushNotificationConfigsRequest {
    /// Checks the presence of a task, and that the page size is not negative.
    ///
    /// # Errors
    /// [`A2aError::InvalidParams`] with a violation per field.
    pub fn validate(&self) -> Result<(), A2aError> {
        let mut violations = Violations::default();
        violations.require(self.task_id.as_str(), "taskId");
        // This field is not optional in the proto file, so that 0 is the same as absent.
        violations.unless(self.page_size >= 0, "pageSize", "must not be negative");
        violations.finish()
    }
}

impl DeleteTaskPushNotificationConfigRequest {
    /// Checks the presence of a task and an id.
    ///
    /// # Errors
    /// [`A2aError::InvalidParams`] with a violation per field.
    pub fn validate(&self) -> Result<(), A2aError> {
        let mut violations = Violations::default();
        violations.require(self.task_id.as_str(), "taskId");
        violations.require(&self.id, "id");
        violations.finish()
    }
}
