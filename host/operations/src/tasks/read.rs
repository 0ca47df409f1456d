//! GetTask, ListTasks and SubscribeToTask (A2A 1.0 sections 3.1.3, 3.1.4 and 3.1.6).

use std::sync::Arc;

use annex_conversation::StoredTask;
use annex_protocol::{
    A2aError, GetTaskRequest, ListTasksRequest, ListTasksResponse, Owner, StreamResponse, SubscribeToTaskRequest,
    TaskId,
};

use crate::activation::Occasion;
use crate::answer::{EventStream, ShownTask, Until};
use crate::request_handler::RequestHandler;
use crate::service_parameters::ServiceParameters;
use crate::tasks::Tasks;
use crate::tasks::log::LoggedEvent;
use crate::tasks::long_work::LongWork;
use crate::tasks::record::{Subscription, TaskRecord};
use crate::tasks::shown::HiddenMetadata;

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
    /// The metadata that the answer to the request does not show: the metadata of limited extensions that are not active on
    /// this occasion.
    pub(crate) fn hidden_on(&self, occasion: &Occasion<'_>) -> HiddenMetadata {
        let Some(set) = self.extensions.limiting_readers() else { return HiddenMetadata::default() };
        let unasked = occasion.unasked(&set.installed);
        HiddenMetadata::of(&set.installed, |extension| {
            let is_asked = occasion.requests(extension.uri()) || unasked.contains(&extension.uri());
            is_asked && occasion.allows(&set.installed, extension)
        })
    }

    pub(crate) async fn get_task(
        &self,
        call: &ServiceParameters,
        request: &GetTaskRequest,
    ) -> Result<ShownTask, A2aError> {
        request.validate()?;
        let hidden = self.hidden_on(&Occasion::read(call));
        let read = async {
            if self.agent_is_remote {
                match self.process.tasks.look(&call.owner, &request.id).await? {
                    Looked::Open(record) => self.catch_up(call, &record).await,
                    // The task does not wait, so the remote agent needs no poll.
                    Looked::Stored(stored) => return ShownTask::stored(stored, request.history_length, &hidden).await,
                }
            }
            if let Some(snapshot) = self.process.tasks.large_snapshot(&call.owner, &request.id).await? {
                return Ok(ShownTask::snapshot(snapshot, request.history_length, &hidden).await);
            }
            let stored = self.process.tasks.load(&call.owner, &request.id).await?;
            ShownTask::stored(stored, request.history_length, &hidden).await
        };
        self.for_tenant(read).await
    }

    pub(crate) async fn list_tasks(
        &self,
        call: &ServiceParameters,
        request: &ListTasksRequest,
    ) -> Result<ListTasksResponse, A2aError> {
        request.validate()?;
        let hidden = self.hidden_on(&Occasion::read(call));
        self.for_tenant(self.process.views.lister.list(&call.owner, request, &hidden)).await
    }

    /// Streams the task and then its events, over any number of turns, until the task ends. A reader that resumes with
    /// the number of its last event gets the missed events in place of the task.
    pub(crate) async fn subscribe_to_task(
        &self,
        call: &ServiceParameters,
        request: &SubscribeToTaskRequest,
    ) -> Result<EventStream, A2aError> {
        self.follow(call, request, Until::TaskEnds).await
    }

    /// Streams the task and then its events until the end of the turn, as clients of 0.3 expect.
    pub(crate) async fn follow_turn(
        &self,
        call: &ServiceParameters,
        request: &SubscribeToTaskRequest,
    ) -> Result<EventStream, A2aError> {
        self.follow(call, request, Until::TurnEnds).await
    }

    async fn follow(
        &self,
        call: &ServiceParameters,
        request: &SubscribeToTaskRequest,
        until: Until,
    ) -> Result<EventStream, A2aError> {
        request.validate()?;
        let record = self.for_tenant(self.process.tasks.open(&call.owner, &request.id)).await?;
        self.for_tenant(self.catch_up(call, &record)).await;
        let hidden = self.hidden_on(&Occasion::read(call));
        if let Some(reader) = call.last_event.and_then(|last| record.read_behind(last)) {
            self.watch(call, &record);
            return Ok(self.events(None, Some(reader.hiding(hidden)), until));
        }
        let Subscription { snapshot, seq, reader: Some(reader) } = record.subscribe() else {
            return Err(A2aError::UnsupportedOperation {
                reason: format!("task {} is finished; use GetTask to read it", request.id),
            });
        };
        let long = LongWork::begin(snapshot.size().bytes).await;
        self.watch(call, &record);
        let mut task = snapshot.into_task();
        hidden.leave_out_of_task(&mut task);
        let first = LoggedEvent::new(Arc::new(StreamResponse::Task(task)), seq);
        if long.is_some() {
            // Encoded here, because the stream reads the event without the permit.
            first.json();
        }
        drop(long);
        Ok(self.events(Some(first), Some(reader.hiding(hidden)), until))
    }
}
