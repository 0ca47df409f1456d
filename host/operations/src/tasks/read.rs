//! GetTask, ListTasks and SubscribeToTask (A2A 1.0 sections 3.1.3, 3.1.4 and 3.1.6).

use std::sync::Arc;

use annex_conversation::StoredTask;
use annex_protocol::{
    A2aError, GetTaskRequest, ListTasksRequest, ListTasksResponse, Owner, StreamResponse, SubscribeToTaskRequest,
    TaskId,
};

use crate::answer::{Answer, EventStream, ShownTask, Until};
use crate::request_handler::RequestHandler;
use crate::service_parameters::ServiceParameters;
use crate::tasks::Tasks;
use crate::tasks::log::LoggedEvent;
use crate::tasks::long_work::LongWork;
use crate::tasks::reading::Read;
use crate::tasks::record::{Subscription, TaskRecord};
use crate::tasks::shown::HiddenMetadata;

/// The name of the operation that extensions get for a subscription, also for one of 0.3.
const SUBSCRIBE: &str = "SubscribeToTask";

/// A task that a client wants to read.
enum Looked {
    /// The task has a live record, or it waits and its remote agent may have continued it.
    Open(Arc<TaskRecord>),
    /// The task is not live and does not wait. It is not decoded yet.
    Stored(StoredTask),
}

impl Tasks {
    /// Finds the task to read. A record is opened only for a task that is live or waits.
    ///
    /// # Errors
    /// [`A2aError::TaskNotFound`].
    async fn look(&self, owner: &Owner, id: &TaskId) -> Result<Looked, A2aError> {
        if self.live_record(owner, id).is_none() {
            let stored = self.load(owner, id).await?;
            if !stored.waits() {
                return Ok(Looked::Stored(stored));
            }
        }
        self.open(owner, id).await.map(Looked::Open)
    }
}

impl RequestHandler {
    pub(crate) async fn get_task(
        &self,
        call: &ServiceParameters,
        request: &GetTaskRequest,
    ) -> Result<Answer<ShownTask>, A2aError> {
        request.validate()?;
        let reader = self.reader(call);
        let read = async {
            let task = self.read(call, request, &reader.hidden).await?;
            self.answer_with(call, (&reader, "GetTask"), task).await
        };
        self.for_tenant(read).await
    }

    async fn read(
        &self,
        call: &ServiceParameters,
        request: &GetTaskRequest,
        hidden: &HiddenMetadata,
    ) -> Result<ShownTask, A2aError> {
        if self.agent_is_remote {
            match self.process.tasks.look(&call.owner, &request.id).await? {
                Looked::Open(record) => self.catch_up(call, &record).await,
                // The task does not wait, so the remote agent needs no poll.
                Looked::Stored(stored) => return ShownTask::stored(stored, request.history_length, hidden).await,
            }
        }
        if let Some(snapshot) = self.process.tasks.large_snapshot(&call.owner, &request.id).await? {
            return Ok(ShownTask::snapshot(snapshot, request.history_length, hidden).await);
        }
        let stored = self.process.tasks.load(&call.owner, &request.id).await?;
        ShownTask::stored(stored, request.history_length, hidden).await
    }

    pub(crate) async fn list_tasks(
        &self,
        call: &ServiceParameters,
        request: &ListTasksRequest,
    ) -> Result<Answer<ListTasksResponse>, A2aError> {
        request.validate()?;
        let reader = self.reader(call);
        let read = async {
            let page = self.process.views.lister.list(&call.owner, request, &reader.hidden).await?;
            let read = Read { operation: "ListTasks", context_id: request.context_id.as_ref(), task_id: None };
            Ok::<_, A2aError>(self.show_page(call, (&reader, read), page).await)
        };
        self.for_tenant(read).await
    }

    /// Streams the task and then its events, over any number of turns, until the task ends. A reader that resumes with
    /// the number of its last event gets the missed events in place of the task.
    pub(crate) async fn subscribe_to_task(
        &self,
        call: &ServiceParameters,
        request: &SubscribeToTaskRequest,
    ) -> Result<Answer<EventStream>, A2aError> {
        self.follow(call, request, Until::TaskEnds).await
    }

    /// Streams the task and then its events until the end of the turn, as clients of 0.3 expect.
    pub(crate) async fn follow_turn(
        &self,
        call: &ServiceParameters,
        request: &SubscribeToTaskRequest,
    ) -> Result<Answer<EventStream>, A2aError> {
        self.follow(call, request, Until::TurnEnds).await
    }

    async fn follow(
        &self,
        call: &ServiceParameters,
        request: &SubscribeToTaskRequest,
        until: Until,
    ) -> Result<Answer<EventStream>, A2aError> {
        request.validate()?;
        let record = self.for_tenant(self.process.tasks.open(&call.owner, &request.id)).await?;
        self.for_tenant(self.catch_up(call, &record)).await;
        let reader = self.reader(call);
        if let Some(log) = call.last_event.and_then(|last| record.read_behind(last)) {
            let snapshot = record.snapshot();
            let active = self.for_tenant(self.check_shown(call, (&reader, SUBSCRIBE), &snapshot)).await?;
            self.watch(call, &record);
            return Ok(Answer { value: self.events(None, Some(log.hiding(reader.hidden)), until), active });
        }
        let Subscription { snapshot, seq, reader: Some(log) } = record.subscribe() else {
            // For a reader from whom the task is left out, the task is not finished but missing.
            let snapshot = record.snapshot();
            self.for_tenant(self.check_shown(call, (&reader, SUBSCRIBE), &snapshot)).await?;
            return Err(A2aError::UnsupportedOperation {
                reason: format!("task {} is finished; use GetTask to read it", request.id),
            });
        };
        let bytes = snapshot.size().bytes;
        let mut long = LongWork::begin(bytes).await;
        let mut task = snapshot.into_task();
        reader.hidden.leave_out_of_task(&mut task);
        let mut active = Vec::new();
        if reader.has_extensions() {
            // The permit must not be held while extensions run.
            drop(long);
            (task, active) = self.for_tenant(self.show_task(call, (&reader, SUBSCRIBE), task)).await?;
            long = LongWork::begin(bytes).await;
        }
        self.watch(call, &record);
        let first = LoggedEvent::new(Arc::new(StreamResponse::Task(task)), seq);
        if long.is_some() {
            // Encoded here, because the stream reads the event without the permit.
            first.json();
        }
        drop(long);
        Ok(Answer { value: self.events(Some(first), Some(log.hiding(reader.hidden)), until), active })
    }
}
