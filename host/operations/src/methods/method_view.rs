//! The view that an extension gets of the host while one of its methods is called. A method call belongs to no turn. The view
//! has the tasks of the caller, and takes requests to resume tasks.

use std::sync::Arc;

use annex_protocol::{ExtensionUri, ListTasksResponse};
use annex_runtime::{Caller, TurnView};
use async_trait::async_trait;

use crate::methods::resumption::Resumptions;
use crate::views::CallersTasks;

pub(crate) struct MethodView {
    pub(crate) tasks: CallersTasks,
    pub(crate) resumptions: Arc<Resumptions>,
    /// The caller. `None` if the extension may not see it.
    pub(crate) caller: Option<Caller>,
}

#[async_trait]
impl TurnView for MethodView {
    fn caller(&self) -> Option<&Caller> {
        self.caller.as_ref()
    }

    async fn list_tasks(&self, request: &str) -> Result<ListTasksResponse, String> {
        self.tasks.list(request).await
    }

    async fn resume_task(&self, task_id: &str, extension: &ExtensionUri) -> Result<(), String> {
        self.resumptions.want(task_id, extension).await
    }
}
