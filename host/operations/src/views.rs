//! The view that extensions have of a turn. The view of a method call is in `methods`.

use std::sync::{Arc, LazyLock};

use annex_agent::Steps;
use annex_conversation::Conversation;
use annex_protocol::{A2aError, Json, JsonObject, ListTasksResponse, Owner, jsonrpc};
use annex_runtime::{Caller, Extension, NoTurn, Scope, ScopeKind, TurnIds, TurnView};
use async_trait::async_trait;

use crate::fault;
use crate::service_parameters::ServiceParameters;
use crate::tasks::list::Lister;
use crate::tasks::shown::HiddenMetadata;
use crate::views::scoped_keys::{ScopedKeys, TurnKeys};
use crate::views::turn_task::TurnTask;

pub mod agent_names;
pub mod scoped_keys;
pub(crate) mod turn_task;

/// The view of a turn without active extensions.
static NO_TURN: LazyLock<Arc<dyn TurnView>> = LazyLock::new(|| Arc::new(NoTurn));

/// The stores that the views of all turns read.
pub struct ExtensionViews {
    pub keys: Arc<ScopedKeys>,
    pub lister: Lister,
}

/// The data of a turn that its extensions may see.
#[derive(Clone, Copy)]
pub(crate) struct VisibleTurn<'a> {
    pub(crate) conversation: &'a Conversation,
    pub(crate) task: &'a TurnTask,
    pub(crate) steps: &'a Steps,
}

impl ExtensionViews {
    /// Makes the view that the extensions in `active` get of a turn of the request `call`.
    ///
    /// # Errors
    /// When the keys of an older conversation with the same id cannot be removed.
    pub(crate) async fn of_turn(
        &self,
        active: &[Arc<Extension>],
        call: &ServiceParameters,
        turn: VisibleTurn<'_>,
    ) -> Result<Arc<dyn TurnView>, A2aError> {
        if active.is_empty() {
            return Ok(Arc::clone(&NO_TURN));
        }
        let mut keys = None;
        // A new conversation costs a query of the key-value store, so turns without the grant skip it.
        if active.iter().any(|extension| extension.grants().keyvalue.is_some()) {
            let of_turn = self.keys.of_turn(&call.owner, turn.conversation, turn.task.id()).await;
            keys = Some(of_turn.map_err(|error| fault::internal(&error))?);
        }
        Ok(Arc::new(ViewOfTurn {
            conversation: turn.conversation.clone(),
            task: turn.task.clone(),
            steps: turn.steps.clone(),
            keys,
            tasks: self.tasks_of(&call.owner),
            caller: active.iter().any(|extension| extension.grants().caller.is_some()).then(|| call.caller()),
        }))
    }

    /// The tasks of a caller.
    pub(crate) fn tasks_of(&self, owner: &Owner) -> CallersTasks {
        CallersTasks { lister: self.lister.clone(), owner: owner.clone() }
    }
}

struct ViewOfTurn {
    conversation: Conversation,
    task: TurnTask,
    steps: Steps,
    /// The keys of the turn's task and conversation. `None` if no active extension may store keys.
    keys: Option<TurnKeys>,
    tasks: CallersTasks,
    /// The caller. `None` if no active extension may see it.
    caller: Option<Caller>,
}

#[async_trait]
impl TurnView for ViewOfTurn {
    fn ids(&self) -> TurnIds {
        TurnIds { task_id: Some(self.task.id().to_string()), context_id: Some(self.task.context_id().to_string()) }
    }

    fn session_value(&self, key: &str) -> Option<String> {
        self.conversation.value(key).map(|value| value.get().to_owned())
    }

    fn session(&self) -> JsonObject {
        self.conversation.own_state()
    }

    fn task(&self) -> Option<String> {
        self.task.current()
    }

    fn caller(&self) -> Option<&Caller> {
        self.caller.as_ref()
    }

    fn key_scope(&self, kind: ScopeKind) -> Option<Scope> {
        self.keys.as_ref()?.scope(kind)
    }

    async fn list_tasks(&self, request: &str) -> Result<ListTasksResponse, String> {
        self.tasks.list(request).await
    }

    fn agent_steps(&self) -> String {
        self.steps.to_json()
    }
}

/// Lists the tasks of the caller of a turn or a method.
pub(crate) struct CallersTasks {
    lister: Lister,
    owner: Owner,
}

impl CallersTasks {
    pub(crate) async fn list(&self, request: &str) -> Result<ListTasksResponse, String> {
        let request = Json::parse(request.to_owned()).map_err(|error| format!("the request is not JSON: {error}"))?;
        let listed = async {
            let request = jsonrpc::params(request.get())?;
            // An extension sees only its own metadata, which the runtime selects.
            self.lister.list(&self.owner, &request, &HiddenMetadata::default()).await
        };
        listed.await.map_err(|error: A2aError| error.to_string())
    }
}
