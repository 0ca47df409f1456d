//! The operations on push notification configs (A2A 1.0 sections 3.1.7 to 3.1.10).

use std::sync::Arc;

use annex_protocol::{
    A2aError, DeleteTaskPushNotificationConfigRequest, GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse, SendMessageRequest, TaskId,
    TaskPushNotificationConfig,
};

use crate::push::PushNotifications;
use crate::request_handler::RequestHandler;
use crate::service_parameters::ServiceParameters;

impl RequestHandler {
    pub(crate) async fn check_push(&self, request: &SendMessageRequest) -> Result<(), A2aError> {
        let Some(config) = &request.configuration.task_push_notification_config else { return Ok(()) };
        if config.tenant.as_ref().is_some_and(|tenant| !tenant.is_empty()) && config.tenant != request.tenant {
            let field = "configuration.taskPushNotificationConfig.tenant";
            return Err(A2aError::invalid_field(field, "is not the tenant of the request; leave it out"));
        }
        self.push()?.check(config, "configuration.taskPushNotificationConfig.").await
    }

    /// Checks that the task of a message has room for the message's push config.
    pub(crate) async fn check_room(&self, request: &SendMessageRequest) -> Result<(), A2aError> {
        match (&request.message.task_id, &request.configuration.task_push_notification_config) {
            (Some(task_id), Some(config)) => self.push()?.check_room(task_id, config).await,
            _ => Ok(()),
        }
    }

    fn push(&self) -> Result<&Arc<PushNotifications>, A2aError> {
        self.process.push.as_ref().ok_or(A2aError::PushNotificationNotSupported)
    }

    pub(crate) async fn create_push_config(
        &self,
        call: &ServiceParameters,
        request: TaskPushNotificationConfig,
    ) -> Result<TaskPushNotificationConfig, A2aError> {
        let push = self.push()?;
        request.validate()?;
        let task_id = request.task_id.clone().filter(|id| !id.as_str().is_empty());
        let task_id = task_id.ok_or_else(|| A2aError::invalid_field("taskId", "is required"))?;
        let put = async {
            let record = self.process.tasks.open(&call.owner, &task_id).await?;
            push.check(&request, "").await?;
            let subscription = record.subscribe();
            let put = push.put(&record, subscription, request).await?;
            self.watch(call, &record);
            Ok(put)
        };
        self.for_tenant(put).await
    }

    pub(crate) async fn get_push_config(
        &self,
        call: &ServiceParameters,
        request: &GetTaskPushNotificationConfigRequest,
    ) -> Result<TaskPushNotificationConfig, A2aError> {
        let push = self.push()?;
        request.validate()?;
        let get = async {
            self.process.tasks.check_exists(&call.owner, &request.task_id).await?;
            push.get(&request.task_id, &request.id).await
        };
        self.for_tenant(get).await
    }

    /// Returns the first config of a task, for clients of 0.3 that name no config.
    pub(crate) async fn first_push_config(
        &self,
        call: &ServiceParameters,
        task_id: &TaskId,
    ) -> Result<TaskPushNotificationConfig, A2aError> {
        let push = self.push()?;
        let get = async {
            self.process.tasks.check_exists(&call.owner, task_id).await?;
            push.first(task_id).await
        };
        self.for_tenant(get).await
    }

    pub(crate) async fn list_push_configs(
        &self,
        call: &ServiceParameters,
        request: &ListTaskPushNotificationConfigsRequest,
    ) -> Result<ListTaskPushNotificationConfigsResponse, A2aError> {
        let push = self.push()?;
        request.validate()?;
        let list = async {
            self.process.tasks.check_exists(&call.owner, &request.task_id).await?;
            push.list(request).await
        };
        self.for_tenant(list).await
    }

    pub(crate) async fn delete_push_config(
        &self,
        call: &ServiceParameters,
        request: &DeleteTaskPushNotificationConfigRequest,
    ) -> Result<(), A2aError> {
        let push = self.push()?;
        request.validate()?;
        let delete = async {
            self.process.tasks.check_exists(&call.owner, &request.task_id).await?;
            push.delete(&request.task_id, &request.id).await
        };
        self.for_tenant(delete).await
    }
}
