//! The hooks that a component exports: their lookup in an instance, and one function per call.

use wasmtime::Store;
use wasmtime::component::{Instance, InstancePre};

use super::convert;
use super::generated::exports::annex::extension as hooks;
use crate::confinement::store::HostState;
use crate::contract::{
    BeginRuling, CardEntry, ChangeRuling, ClientAddition, ClientEvent, ClientRequest, Decision, Description, Entries,
    Event, ExtensionError, LiveCardEntry, MetadataEntry, MethodDeclaration, MethodReply, ModelCall, ModelVerdict,
    OutputContent, OutputVerdict, Rejection, RemarkDraft, Remarked, ReplyAnswer, Rewrite, ShownEntry, ShownTask,
    StateChange, TaskVisibility, ToolCall, ToolResult, ToolVerdict,
};
use crate::hook::Hook;

/// The result of calling a hook. The outer error is a trap or an exceeded limit. The inner result is the hook's own
/// result.
type CallResult<T, E> = wasmtime::Result<Result<T, E>>;

/// The functions of a component's hooks. A field is `None` if the component does not export the hook.
pub(crate) struct Exports {
    descriptor: hooks::descriptor::GuestIndices,
    card: Option<hooks::card::GuestIndices>,
    live_card: Option<hooks::live_card::GuestIndices>,
    activation: Option<hooks::activation::GuestIndices>,
    message: Option<hooks::message::GuestIndices>,
    state: Option<hooks::state::GuestIndices>,
    transition: Option<hooks::transition::GuestIndices>,
    reply: Option<hooks::reply::GuestIndices>,
    steering: Option<hooks::steering::GuestIndices>,
    output: Option<hooks::output::GuestIndices>,
    response: Option<hooks::response::GuestIndices>,
    reads: Option<hooks::reads::GuestIndices>,
    extended_card: Option<hooks::extended_card::GuestIndices>,
    method: Option<hooks::method::GuestIndices>,
    client: Option<hooks::client::GuestIndices>,
}

impl Exports {
    /// Looks up the functions of the exported hooks.
    pub(crate) fn of(component: &InstancePre<HostState>, exported: &[Hook]) -> wasmtime::Result<Self> {
        let has = |hook| exported.contains(&hook);
        Ok(Self {
            // `Inspection` has refused components without a descriptor.
            descriptor: hooks::descriptor::GuestIndices::new(component)?,
            card: has(Hook::Card).then(|| hooks::card::GuestIndices::new(component)).transpose()?,
            live_card: has(Hook::LiveCard).then(|| hooks::live_card::GuestIndices::new(component)).transpose()?,
            activation: has(Hook::Activation).then(|| hooks::activation::GuestIndices::new(component)).transpose()?,
            message: has(Hook::Message).then(|| hooks::message::GuestIndices::new(component)).transpose()?,
            state: has(Hook::State).then(|| hooks::state::GuestIndices::new(component)).transpose()?,
            transition: has(Hook::Transition).then(|| hooks::transition::GuestIndices::new(component)).transpose()?,
            reply: has(Hook::Reply).then(|| hooks::reply::GuestIndices::new(component)).transpose()?,
            steering: has(Hook::Steering).then(|| hooks::steering::GuestIndices::new(component)).transpose()?,
            output: has(Hook::Output).then(|| hooks::output::GuestIndices::new(component)).transpose()?,
            response: has(Hook::Response).then(|| hooks::response::GuestIndices::new(component)).transpose()?,
            reads: has(Hook::Reads).then(|| hooks::reads::GuestIndices::new(component)).transpose()?,
            extended_card: has(Hook::ExtendedCard)
                .then(|| hooks::extended_card::GuestIndices::new(component))
                .transpose()?,
            method: has(Hook::Method).then(|| hooks::method::GuestIndices::new(component)).transpose()?,
            client: has(Hook::Client).then(|| hooks::client::GuestIndices::new(component)).transpose()?,
        })
    }

    /// Compares the types of all exported functions with the contract. The lookup alone only checks the names of the
    /// functions.
    ///
    /// # Errors
    /// Returns the first hook whose type differs, and the position of the difference in the type.
    pub(crate) fn check_types(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
    ) -> Result<(), (Hook, wasmtime::Error)> {
        macro_rules! check {
            ($($hook:ident: $exported:expr),* $(,)?) => {$(
                if let Some(indices) = $exported {
                    indices.load(&mut *store, instance).map_err(|error| (Hook::$hook, error))?;
                }
            )*};
        }
        check!(
            Descriptor: Some(&self.descriptor),
            Card: &self.card,
            LiveCard: &self.live_card,
            Activation: &self.activation,
            Message: &self.message,
            State: &self.state,
            Transition: &self.transition,
            Reply: &self.reply,
            Steering: &self.steering,
            Output: &self.output,
            Response: &self.response,
            Reads: &self.reads,
            ExtendedCard: &self.extended_card,
            Method: &self.method,
            Client: &self.client,
        );
        Ok(())
    }

    pub(crate) fn has(&self, hook: Hook) -> bool {
        match hook {
            Hook::Descriptor => true,
            Hook::Card => self.card.is_some(),
            Hook::LiveCard => self.live_card.is_some(),
            Hook::Activation => self.activation.is_some(),
            Hook::Message => self.message.is_some(),
            Hook::State => self.state.is_some(),
            Hook::Transition => self.transition.is_some(),
            Hook::Reply => self.reply.is_some(),
            Hook::Steering => self.steering.is_some(),
            Hook::Output => self.output.is_some(),
            Hook::Response => self.response.is_some(),
            Hook::Reads => self.reads.is_some(),
            Hook::ExtendedCard => self.extended_card.is_some(),
            Hook::Method => self.method.is_some(),
            Hook::Client => self.client.is_some(),
        }
    }

    pub(crate) async fn describe(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
    ) -> CallResult<Description, String> {
        let described = self.descriptor.load(&mut *store, instance)?.call_describe(store).await?;
        Ok(described.map(Description::from))
    }

    pub(crate) async fn declare(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
    ) -> CallResult<CardEntry, String> {
        let declared = found(self.card.as_ref())?.load(&mut *store, instance)?.call_declare(store).await?;
        Ok(declared.map(CardEntry::from))
    }

    pub(crate) async fn declare_live(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
    ) -> CallResult<LiveCardEntry, String> {
        let live_card = found(self.live_card.as_ref())?.load(&mut *store, instance)?;
        Ok(live_card.call_declare_live(store).await?.map(LiveCardEntry::from))
    }

    pub(crate) async fn activate(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        request: &convert::Request,
    ) -> CallResult<Decision, ExtensionError> {
        let activation = found(self.activation.as_ref())?.load(&mut *store, instance)?;
        let decided = activation.call_activate(store, request).await?;
        Ok(decided.map(Decision::from).map_err(ExtensionError::from))
    }

    pub(crate) async fn check(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        request: &convert::Request,
        message: String,
    ) -> CallResult<Vec<Rewrite>, Rejection> {
        let hook = found(self.message.as_ref())?.load(&mut *store, instance)?;
        let checked = hook.call_check(store, request, &message).await?;
        Ok(checked.map(|rewrites| rewrites.into_iter().map(Rewrite::from).collect()).map_err(Rejection::from))
    }

    pub(crate) async fn validate(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        request: &convert::Request,
        metadata: Vec<MetadataEntry>,
    ) -> CallResult<Option<String>, Rejection> {
        let metadata: Vec<_> = metadata.into_iter().map(convert::MetadataEntry::from).collect();
        let state = found(self.state.as_ref())?.load(&mut *store, instance)?;
        Ok(state.call_validate(store, request, &metadata).await?.map_err(Rejection::from))
    }

    pub(crate) async fn begin(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        request: &convert::Request,
        beginning: &convert::Beginning,
    ) -> CallResult<BeginRuling, String> {
        let transition = found(self.transition.as_ref())?.load(&mut *store, instance)?;
        Ok(transition.call_begin(store, request, beginning).await?.map(BeginRuling::from))
    }

    pub(crate) async fn change(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        change: StateChange,
    ) -> CallResult<ChangeRuling, String> {
        let transition = found(self.transition.as_ref())?.load(&mut *store, instance)?;
        Ok(transition.call_change(store, &change.into()).await?.map(ChangeRuling::from))
    }

    pub(crate) async fn before_agent(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        request: &convert::Request,
        message: String,
    ) -> CallResult<Option<ReplyAnswer>, String> {
        let reply = found(self.reply.as_ref())?.load(&mut *store, instance)?;
        let answered = reply.call_before_agent(store, request, &message).await?;
        Ok(answered.map(|answer| answer.map(ReplyAnswer::from)))
    }

    pub(crate) async fn before_model(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        call: ModelCall,
    ) -> CallResult<Remarked<ModelVerdict>, String> {
        let steering = found(self.steering.as_ref())?.load(&mut *store, instance)?;
        let answered = steering.call_before_model(store, &call.into()).await?;
        Ok(answered.map(|(verdict, remark)| (verdict.into(), remark.map(RemarkDraft::from))))
    }

    pub(crate) async fn before_tool(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        call: ToolCall,
    ) -> CallResult<Remarked<ToolVerdict>, String> {
        let steering = found(self.steering.as_ref())?.load(&mut *store, instance)?;
        let answered = steering.call_before_tool(store, &call.into()).await?;
        Ok(answered.map(|(verdict, remark)| (verdict.into(), remark.map(RemarkDraft::from))))
    }

    pub(crate) async fn after_tool(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        made: ToolResult,
    ) -> CallResult<Remarked<Option<String>>, String> {
        let steering = found(self.steering.as_ref())?.load(&mut *store, instance)?;
        let answered = steering.call_after_tool(store, &made.into()).await?;
        Ok(answered.map(|(output, remark)| (output, remark.map(RemarkDraft::from))))
    }

    pub(crate) async fn revise(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        content: OutputContent,
    ) -> CallResult<OutputVerdict, String> {
        let output = found(self.output.as_ref())?.load(&mut *store, instance)?;
        Ok(output.call_revise(store, &content.into()).await?.map(OutputVerdict::from))
    }

    pub(crate) async fn respond(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        event: Event,
    ) -> CallResult<Option<Entries>, String> {
        let response = found(self.response.as_ref())?.load(&mut *store, instance)?;
        let responded = response.call_respond(store, &event.into()).await?;
        Ok(responded.map(|patch| patch.map(|patch| patch.metadata)))
    }

    pub(crate) async fn show(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        request: &convert::Request,
        tasks: Vec<ShownTask>,
    ) -> CallResult<Vec<TaskVisibility>, String> {
        let tasks: Vec<_> = tasks.into_iter().map(hooks::reads::ShownTask::from).collect();
        let reads = found(self.reads.as_ref())?.load(&mut *store, instance)?;
        let views = reads.call_show(store, request, &tasks).await?;
        Ok(views.map(|views| views.into_iter().map(TaskVisibility::from).collect()))
    }

    pub(crate) async fn show_entry(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        request: &convert::Request,
        entry: ShownEntry,
    ) -> CallResult<CardEntry, String> {
        let extended_card = found(self.extended_card.as_ref())?.load(&mut *store, instance)?;
        Ok(extended_card.call_show_entry(store, request, &entry.into()).await?.map(CardEntry::from))
    }

    pub(crate) async fn declare_methods(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
    ) -> CallResult<Vec<MethodDeclaration>, String> {
        let method = found(self.method.as_ref())?.load(&mut *store, instance)?;
        let declared = method.call_declare_methods(store).await?;
        Ok(declared.map(|methods| methods.into_iter().map(MethodDeclaration::from).collect()))
    }

    pub(crate) async fn call(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        request: &convert::Request,
        name: &str,
        params: String,
    ) -> CallResult<MethodReply, Rejection> {
        let method = found(self.method.as_ref())?.load(&mut *store, instance)?;
        let answered = method.call_call(store, request, name, &params).await?;
        Ok(answered.map(MethodReply::from).map_err(Rejection::from))
    }

    pub(crate) async fn next(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
    ) -> CallResult<Option<String>, Rejection> {
        let method = found(self.method.as_ref())?.load(&mut *store, instance)?;
        Ok(method.call_next(store).await?.map_err(Rejection::from))
    }

    pub(crate) async fn before(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        call: ClientRequest,
    ) -> CallResult<ClientAddition, Rejection> {
        let client = found(self.client.as_ref())?.load(&mut *store, instance)?;
        let added = client.call_before(store, &call.into()).await?;
        Ok(added.map(ClientAddition::from).map_err(Rejection::from))
    }

    pub(crate) async fn after(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        event: ClientEvent,
    ) -> CallResult<Option<String>, String> {
        let client = found(self.client.as_ref())?.load(&mut *store, instance)?;
        client.call_after(store, &event.into()).await
    }
}

/// Unwraps the lookup of a hook. The host checks [`Exports::has`] before each call, so an error is a bug of the host.
fn found<T>(indices: Option<&T>) -> wasmtime::Result<&T> {
    indices.ok_or_else(|| wasmtime::format_err!("the component has no such hook"))
}
