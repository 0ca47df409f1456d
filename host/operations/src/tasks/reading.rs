//! Lets extensions change the tasks that a reader gets (the hook `reads`).
//!
//! Extensions add metadata to the answer of one read, or leave tasks out of it. Stored tasks, events and push
//! notifications stay as they are. A failing extension never fails a read.

use std::sync::Arc;

use annex_conversation::TaskSnapshot;
use annex_protocol::service::format_extensions;
use annex_protocol::{A2aError, ContextId, ExtensionUri, ListTasksResponse, Message, Metadata, Task, TaskId};
use annex_runtime::{Caller, Extension, Hook, ShownTasks, TaskToShow, TurnRequest, TurnView, show_tasks};
use async_trait::async_trait;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::activation::{self, Occasion};
use crate::answer::{Answer, ShownTask};
use crate::extension_set::ExtensionSet;
use crate::permits::TurnPermit;
use crate::request_handler::RequestHandler;
use crate::service_parameters::ServiceParameters;
use crate::tasks::long_work::LongWork;
use crate::tasks::shown::HiddenMetadata;
use crate::views::CallersTasks;

/// How a reader sees tasks.
#[derive(Default)]
pub(crate) struct Reader {
    /// The metadata that the reader does not see.
    pub(crate) hidden: HiddenMetadata,
    /// The extensions with the hook `reads` that are active for the reader, in the order of the config.
    extensions: Vec<Arc<Extension>>,
}

/// A read, as the extensions see it.
#[derive(Clone, Copy)]
pub(crate) struct Read<'a> {
    pub(crate) operation: &'a str,
    /// The conversation that the reader names, or that of the only task.
    pub(crate) context_id: Option<&'a ContextId>,
    /// The only task. `None` for a list.
    pub(crate) task_id: Option<&'a TaskId>,
}

impl Reader {
    /// True if an extension may change the tasks that this reader gets.
    pub(crate) fn has_extensions(&self) -> bool {
        !self.extensions.is_empty()
    }
}

impl RequestHandler {
    /// How the caller of a read sees tasks.
    pub(crate) fn reader(&self, call: &ServiceParameters) -> Reader {
        let Some(set) = self.extensions.for_readers() else { return Reader::default() };
        let occasion = Occasion::read(call);
        let hidden =
            if set.installed.limits_readers() { hidden_in(&set, &occasion) } else { HiddenMetadata::default() };
        // While this process must not use its set, no extension of the set runs.
        let runs = set.installed.shows_tasks() && self.extensions.current().is_ok();
        let extensions = if runs { activation::for_read(&set.installed, &occasion, Hook::Reads) } else { Vec::new() };
        Reader { hidden, extensions }
    }

    /// The metadata that the answer to the request does not show: the metadata of limited extensions that are not active on
    /// this occasion.
    pub(crate) fn hidden_on(&self, occasion: &Occasion<'_>) -> HiddenMetadata {
        let set = self.extensions.for_readers().filter(|set| set.installed.limits_readers());
        set.map(|set| hidden_in(&set, occasion)).unwrap_or_default()
    }

    /// The answer to a read of one task, and the extensions that took part.
    ///
    /// # Errors
    /// [`A2aError::TaskNotFound`] if an extension leaves the task out.
    pub(crate) async fn answer_with(
        &self,
        call: &ServiceParameters,
        (reader, operation): (&Reader, &str),
        task: ShownTask,
    ) -> Result<Answer<ShownTask>, A2aError> {
        if !reader.has_extensions() {
            return Ok(Answer { value: task, active: Vec::new() });
        }
        let (task, active) = self.show_task(call, (reader, operation), task.into_task()?).await?;
        let value = ShownTask::snapshot(task.into(), None, &HiddenMetadata::default()).await;
        Ok(Answer { value, active })
    }

    /// Adds to one task what extensions add for the reader. Returns the task, and the extensions that took part.
    ///
    /// # Errors
    /// [`A2aError::TaskNotFound`] if an extension leaves the task out.
    pub(crate) async fn show_task(
        &self,
        call: &ServiceParameters,
        (reader, operation): (&Reader, &str),
        mut task: Task,
    ) -> Result<(Task, Vec<ExtensionUri>), A2aError> {
        let (added, active) = self.ask_about_one(call, (reader, operation), TaskToShow::from(&task)).await?;
        task.metadata.extend(added);
        Ok((task, active))
    }

    /// Checks that no extension leaves out a task of which the reader gets only events. Returns the extensions that took
    /// part.
    ///
    /// # Errors
    /// [`A2aError::TaskNotFound`] if an extension leaves the task out.
    pub(crate) async fn check_shown(
        &self,
        call: &ServiceParameters,
        (reader, operation): (&Reader, &str),
        task: &TaskSnapshot,
    ) -> Result<Vec<ExtensionUri>, A2aError> {
        if !reader.has_extensions() {
            return Ok(Vec::new());
        }
        let long = LongWork::begin(task.size().bytes).await;
        let seen = TaskToShow::from(&**task);
        drop(long);
        let (_, active) = self.ask_about_one(call, (reader, operation), seen).await?;
        Ok(active)
    }

    async fn ask_about_one(
        &self,
        call: &ServiceParameters,
        (reader, operation): (&Reader, &str),
        task: TaskToShow,
    ) -> Result<(Metadata, Vec<ExtensionUri>), A2aError> {
        let tasks = [task];
        let [TaskToShow { id, context_id, .. }] = &tasks;
        let read = Read { operation, context_id: Some(context_id), task_id: Some(id) };
        let ShownTasks { added, active } = self.ask_about(call, (reader, read), &tasks).await;
        let added = added.into_iter().next().flatten();
        let added = added.ok_or_else(|| A2aError::TaskNotFound { task_id: id.clone() })?;
        Ok((added, active))
    }

    /// Applies the decisions of the extensions to a page of a list: adds metadata to tasks, and leaves tasks out. The total and the
    /// token of the next page stay as they are.
    pub(crate) async fn show_page(
        &self,
        call: &ServiceParameters,
        (reader, read): (&Reader, Read<'_>),
        mut page: ListTasksResponse,
    ) -> Answer<ListTasksResponse> {
        if !reader.has_extensions() {
            return Answer { value: page, active: Vec::new() };
        }
        let tasks: Vec<TaskToShow> = page.tasks.iter().map(TaskToShow::from).collect();
        let ShownTasks { added, active } = self.ask_about(call, (reader, read), &tasks).await;
        let mut added = added.into_iter();
        page.tasks.retain_mut(|task| match added.next().flatten() {
            Some(added) => {
                task.metadata.extend(added);
                true
            }
            None => false,
        });
        Answer { value: page, active }
    }

    /// Asks the extensions about the tasks of one read. Without a permit no extension is asked, and the tasks are shown as
    /// they are stored.
    async fn ask_about(
        &self,
        call: &ServiceParameters,
        (reader, read): (&Reader, Read<'_>),
        tasks: &[TaskToShow],
    ) -> ShownTasks {
        if tasks.is_empty() {
            return ShownTasks::unchanged(0);
        }
        let Some(_permit) = self.permit_for_read(call).await else {
            return ShownTasks::unchanged(tasks.len());
        };
        let parts = self.parts_of_read(call, &reader.extensions);
        let request = parts.request(call, read);
        let shown = Box::pin(show_tasks(&reader.extensions, &request, tasks)).await;
        tell(&shown.active);
        shown
    }

    /// The permit for asking extensions about a read, like that for a call of a method. `None` if no permit is free, and
    /// while the server or the tenant begins no work.
    pub(crate) async fn permit_for_read(&self, call: &ServiceParameters) -> Option<ReadPermit> {
        self.check_work(&call.owner.principal).await.ok()?;
        // The token makes a draining server wait for the call.
        let counted = self.process.running.token();
        self.check_begins().ok()?;
        // A read waits for no turn.
        let permit = self.turn_limiter.try_take(&call.owner).await.ok()?;
        Some(ReadPermit { _counted: counted, _permit: permit })
    }

    /// The parts of the request that `extensions` get for a read.
    pub(crate) fn parts_of_read(&self, call: &ServiceParameters, extensions: &[Arc<Extension>]) -> ReadParts {
        let sees_caller = extensions.iter().any(|extension| extension.grants().caller.is_some());
        let view =
            ReadView { tasks: self.process.views.tasks_of(&call.owner), caller: sees_caller.then(|| call.caller()) };
        ReadParts { message: Message::default(), metadata: Metadata::new(), view: Arc::new(view) }
    }
}

/// The permit of a read for which extensions are asked. Dropping it releases the permit.
pub(crate) struct ReadPermit {
    _counted: TaskTrackerToken,
    _permit: TurnPermit,
}

/// The parts of the request that extensions get for a read. A read has no message.
pub(crate) struct ReadParts {
    message: Message,
    metadata: Metadata,
    view: Arc<ReadView>,
}

impl ReadParts {
    /// The request as the extensions see it.
    pub(crate) fn request<'a>(&'a self, call: &'a ServiceParameters, read: Read<'a>) -> TurnRequest<'a> {
        TurnRequest {
            operation: read.operation,
            context_id: read.context_id,
            task_id: read.task_id,
            requested: &call.requested,
            message: &self.message,
            request: &self.metadata,
            view: Arc::clone(&self.view) as Arc<dyn TurnView>,
            resumed: false,
        }
    }
}

/// The metadata of limited extensions that are not active on this occasion.
fn hidden_in(set: &ExtensionSet, occasion: &Occasion<'_>) -> HiddenMetadata {
    let unasked = occasion.unasked(&set.installed);
    HiddenMetadata::of(&set.installed, |extension| {
        let is_asked = occasion.requests(extension.uri()) || unasked.contains(&extension.uri());
        is_asked && occasion.allows(&set.installed, extension)
    })
}

/// Adds the extensions to the request's log line.
pub(crate) fn tell(active: &[ExtensionUri]) {
    annex_telemetry::with(|request| {
        if request.is_measured() && !active.is_empty() {
            let _ = request.extensions.set(format_extensions(active).into());
        }
    });
}

/// The view that an extension gets of the host while it is asked about a read. A read belongs to no turn. The view has the
/// tasks of the caller, as they are stored.
struct ReadView {
    tasks: CallersTasks,
    /// The caller. `None` if no active extension may see it.
    caller: Option<Caller>,
}

#[async_trait]
impl TurnView for ReadView {
    fn caller(&self) -> Option<&Caller> {
        self.caller.as_ref()
    }

    async fn list_tasks(&self, request: &str) -> Result<ListTasksResponse, String> {
        self.tasks.list(request).await
    }
}
