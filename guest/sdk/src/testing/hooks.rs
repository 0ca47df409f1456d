//! Calls of hooks with the host's parameters.

use super::Host;
use crate::{
    Activation, Addition, Answer, Beginning, Card, Client, Config, Content, Decision, Declaration, Descriptor, Entry,
    EntryChange, Event, ExtendedCard, Extension, ExtensionError, FromConfig, Incoming, Json, LiveCard, LiveDeclaration,
    Message, MetadataEntry, Method, MethodDeclaration, ModelCall, ModelVerdict, Outgoing, Output, Patch, Reads,
    ReadyAnswer, Rejection, Remark, Reply, Request, Response, Rewrite, Ruling, ShownEntry, ShownTask, State,
    StateChange, Steering, ToolCall, ToolResult, ToolVerdict, Transition, Verdict, View,
};

/// Calls of hooks with the host's parameters. All except [`Host::descriptor`] panic if the parameters do not fit.
impl Host {
    /// Calls [`Extension::descriptor`].
    ///
    /// # Errors
    /// The hook returns an error, or the parameters do not fit. A real host finds such parameters earlier, if the
    /// extension has a [schema](Extension::PARAMETER_SCHEMA).
    pub fn descriptor<E: Extension>(&self) -> Result<Descriptor, String> {
        self.run(|| E::descriptor(&E::Parameters::from_config(&Config::HOST)?))
    }

    /// Calls [`Card::declare`].
    ///
    /// # Errors
    /// The hook returns an error.
    #[track_caller]
    pub fn declare<E: Card>(&self) -> Result<Declaration, String> {
        let parameters = self.read::<E>();
        self.run(|| E::declare(&parameters))
    }

    /// Calls [`LiveCard::declare_live`].
    ///
    /// # Errors
    /// The hook returns an error.
    #[track_caller]
    pub fn declare_live<E: LiveCard>(&self) -> Result<LiveDeclaration, String> {
        let parameters = self.read::<E>();
        self.run(|| E::declare_live(&parameters))
    }

    /// Calls [`Activation::activate`].
    ///
    /// # Errors
    /// The hook returns an error.
    #[track_caller]
    pub fn activate<E: Activation>(&self, request: Request) -> Result<Decision, ExtensionError> {
        let parameters = self.read::<E>();
        self.run(|| E::activate(&parameters, request))
    }

    /// Calls [`Message::check`].
    ///
    /// # Errors
    /// The hook returns an error.
    #[track_caller]
    pub fn check<E: Message>(&self, request: Request, message: impl Into<Json>) -> Result<Vec<Rewrite>, Rejection> {
        let parameters = self.read::<E>();
        self.run(|| E::check(&parameters, request, message.into()))
    }

    /// Calls [`State::validate`].
    ///
    /// # Errors
    /// The hook returns an error.
    #[track_caller]
    pub fn validate<E: State>(
        &self,
        request: Request,
        metadata: Vec<MetadataEntry>,
    ) -> Result<Option<Json>, Rejection> {
        let parameters = self.read::<E>();
        self.run(|| E::validate(&parameters, request, metadata))
    }

    /// Calls [`Transition::begin`].
    ///
    /// # Errors
    /// The hook returns an error.
    #[track_caller]
    pub fn begin<E: Transition>(&self, request: Request, beginning: Beginning) -> Result<Entry, String> {
        let parameters = self.read::<E>();
        self.run(|| E::begin(&parameters, request, beginning))
    }

    /// Calls [`Transition::change`].
    ///
    /// # Errors
    /// The hook returns an error.
    #[track_caller]
    pub fn change<E: Transition>(&self, change: StateChange) -> Result<Ruling, String> {
        let parameters = self.read::<E>();
        self.run(|| E::change(&parameters, change))
    }

    /// Calls [`Reply::before_agent`].
    ///
    /// # Errors
    /// The hook returns an error.
    #[track_caller]
    pub fn before_agent<E: Reply>(
        &self,
        request: Request,
        message: impl Into<Json>,
    ) -> Result<Option<ReadyAnswer>, String> {
        let parameters = self.read::<E>();
        self.run(|| E::before_agent(&parameters, request, message.into()))
    }

    /// Calls [`Steering::before_model`].
    ///
    /// # Errors
    /// The hook returns an error.
    #[track_caller]
    pub fn before_model<E: Steering>(&self, call: ModelCall) -> Result<(ModelVerdict, Option<Remark>), String> {
        let parameters = self.read::<E>();
        self.run(|| E::before_model(&parameters, call))
    }

    /// Calls [`Steering::before_tool`].
    ///
    /// # Errors
    /// The hook returns an error.
    #[track_caller]
    pub fn before_tool<E: Steering>(&self, call: ToolCall) -> Result<(ToolVerdict, Option<Remark>), String> {
        let parameters = self.read::<E>();
        self.run(|| E::before_tool(&parameters, call))
    }

    /// Calls [`Steering::after_tool`].
    ///
    /// # Errors
    /// The hook returns an error.
    #[track_caller]
    pub fn after_tool<E: Steering>(&self, made: ToolResult) -> Result<(Option<Json>, Option<Remark>), String> {
        let parameters = self.read::<E>();
        self.run(|| E::after_tool(&parameters, made))
    }

    /// Calls [`Output::revise`].
    ///
    /// # Errors
    /// The hook returns an error.
    #[track_caller]
    pub fn revise<E: Output>(&self, content: Content) -> Result<Verdict, String> {
        let parameters = self.read::<E>();
        self.run(|| E::revise(&parameters, content))
    }

    /// Calls [`Response::respond`].
    ///
    /// # Errors
    /// The hook returns an error.
    #[track_caller]
    pub fn respond<E: Response>(&self, event: Event) -> Result<Option<Patch>, String> {
        let parameters = self.read::<E>();
        self.run(|| E::respond(&parameters, event))
    }

    /// Calls [`Reads::show`].
    ///
    /// # Errors
    /// The hook returns an error.
    #[track_caller]
    pub fn show<E: Reads>(&self, request: Request, tasks: Vec<ShownTask>) -> Result<Vec<View>, String> {
        let parameters = self.read::<E>();
        self.run(|| E::show(&parameters, request, tasks))
    }

    /// Calls [`ExtendedCard::show_entry`].
    ///
    /// # Errors
    /// The hook returns an error.
    #[track_caller]
    pub fn show_entry<E: ExtendedCard>(&self, request: Request, entry: ShownEntry) -> Result<EntryChange, String> {
        let parameters = self.read::<E>();
        self.run(|| E::show_entry(&parameters, request, entry))
    }

    /// Calls [`Method::methods`].
    ///
    /// # Errors
    /// The hook returns an error.
    #[track_caller]
    pub fn methods<E: Method>(&self) -> Result<Vec<MethodDeclaration>, String> {
        let parameters = self.read::<E>();
        self.run(|| E::methods(&parameters))
    }

    /// Calls [`Method::call`].
    ///
    /// # Errors
    /// The hook returns an error.
    #[track_caller]
    pub fn call<E: Method>(&self, request: Request, name: &str, params: impl Into<Json>) -> Result<Answer, Rejection> {
        let parameters = self.read::<E>();
        self.run(|| E::call(&parameters, request, name, params.into()))
    }

    /// Calls [`Method::next`].
    ///
    /// # Errors
    /// The hook returns an error.
    #[track_caller]
    pub fn next<E: Method>(&self) -> Result<Option<Json>, Rejection> {
        let parameters = self.read::<E>();
        self.run(|| E::next(&parameters))
    }

    /// Calls [`Client::before`].
    ///
    /// # Errors
    /// The hook returns an error.
    #[track_caller]
    pub fn before<E: Client>(&self, call: Outgoing) -> Result<Addition, Rejection> {
        let parameters = self.read::<E>();
        self.run(|| E::before(&parameters, call))
    }

    /// Calls [`Client::after`].
    ///
    /// # Errors
    /// The hook returns an error.
    #[track_caller]
    pub fn after<E: Client>(&self, event: Incoming) -> Result<Option<Json>, String> {
        let parameters = self.read::<E>();
        self.run(|| E::after(&parameters, event))
    }

    /// Reads the parameters again for each hook, because the test may have changed them.
    #[track_caller]
    #[expect(clippy::panic, reason = "a real host would not have loaded the extension")]
    fn read<E: Extension>(&self) -> E::Parameters {
        match self.run(|| E::Parameters::from_config(&Config::HOST)) {
            Ok(parameters) => parameters,
            Err(reason) => panic!("annex_sdk::testing: {reason}"),
        }
    }
}
