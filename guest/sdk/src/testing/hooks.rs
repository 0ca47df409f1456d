//! Calls of hooks with the host's parameters.

use super::Host;
use crate::{
    Activation, Addition, Answer, Beginning, Card, Client, Config, Decision, Declaration, Descriptor, Entry, Event,
    Extension, ExtensionError, FromConfig, Incoming, Json, Message, MetadataEntry, Method, MethodDeclaration, Outgoing,
    Patch, Rejection, Request, Response, Rewrite, Ruling, State, StateChange, Transition,
};

/// Calls of hooks with the host's parameters. All except [`Host::descriptor`] panic if the parameters do not fit.
impl Host {
    /// [`Extension::descriptor`].
    ///
    /// # Errors
    /// As the hook, and if the parameters do not fit. A real host reports such parameters by the
    /// [schema](Extension::PARAMETER_SCHEMA), if any.
    pub fn descriptor<E: Extension>(&self) -> Result<Descriptor, String> {
        self.run(|| E::descriptor(&E::Parameters::from_config(&Config::HOST)?))
    }

    /// [`Card::declare`].
    ///
    /// # Errors
    /// As the hook.
    #[track_caller]
    pub fn declare<E: Card>(&self) -> Result<Declaration, String> {
        let parameters = self.read::<E>();
        self.run(|| E::declare(&parameters))
    }

    /// [`Activation::activate`].
    ///
    /// # Errors
    /// As the hook.
    #[track_caller]
    pub fn activate<E: Activation>(&self, request: Request) -> Result<Decision, ExtensionError> {
        let parameters = self.read::<E>();
        self.run(|| E::activate(&parameters, request))
    }

    /// [`Message::check`].
    ///
    /// # Errors
    /// As the hook.
    #[track_caller]
    pub fn check<E: Message>(&self, request: Request, message: impl Into<Json>) -> Result<Vec<Rewrite>, Rejection> {
        let parameters = self.read::<E>();
        self.run(|| E::check(&parameters, request, message.into()))
    }

    /// [`State::validate`].
    ///
    /// # Errors
    /// As the hook.
    #[track_caller]
    pub fn validate<E: State>(
        &self,
        request: Request,
        metadata: Vec<MetadataEntry>,
    ) -> Result<Option<Json>, Rejection> {
        let parameters = self.read::<E>();
        self.run(|| E::validate(&parameters, request, metadata))
    }

    /// [`Transition::begin`].
    ///
    /// # Errors
    /// As the hook.
    #[track_caller]
    pub fn begin<E: Transition>(&self, request: Request, beginning: Beginning) -> Result<Entry, String> {
        let parameters = self.read::<E>();
        self.run(|| E::begin(&parameters, request, beginning))
    }

    /// [`Transition::change`].
    ///
    /// # Errors
    /// As the hook.
    #[track_caller]
    pub fn change<E: Transition>(&self, change: StateChange) -> Result<Ruling, String> {
        let parameters = self.read::<E>();
        self.run(|| E::change(&parameters, change))
    }

    /// [`Response::respond`].
    ///
    /// # Errors
    /// As the hook.
    #[track_caller]
    pub fn respond<E: Response>(&self, event: Event) -> Result<Option<Patch>, String> {
        let parameters = self.read::<E>();
        self.run(|| E::respond(&parameters, event))
    }

    /// [`Method::methods`].
    ///
    /// # Errors
    /// As the hook.
    #[track_caller]
    pub fn methods<E: Method>(&self) -> Result<Vec<MethodDeclaration>, String> {
        let parameters = self.read::<E>();
        self.run(|| E::methods(&parameters))
    }

    /// [`Method::call`].
    ///
    /// # Errors
    /// As the hook.
    #[track_caller]
    pub fn call<E: Method>(&self, request: Request, name: &str, params: impl Into<Json>) -> Result<Answer, Rejection> {
        let parameters = self.read::<E>();
        self.run(|| E::call(&parameters, request, name, params.into()))
    }

    /// [`Method::next`].
    ///
    /// # Errors
    /// As the hook.
    #[track_caller]
    pub fn next<E: Method>(&self) -> Result<Option<Json>, Rejection> {
        let parameters = self.read::<E>();
        self.run(|| E::next(&parameters))
    }

    /// [`Client::before`].
    ///
    /// # Errors
    /// As the hook.
    #[track_caller]
    pub fn before<E: Client>(&self, call: Outgoing) -> Result<Addition, Rejection> {
        let parameters = self.read::<E>();
        self.run(|| E::before(&parameters, call))
    }

    /// [`Client::after`].
    ///
    /// # Errors
    /// As the hook.
    #[track_caller]
    pub fn after<E: Client>(&self, event: Incoming) -> Result<Option<Json>, String> {
        let parameters = self.read::<E>();
        self.run(|| E::after(&parameters, event))
    }

    /// Reads the parameters. Done for each hook, because the test may have changed them.
    #[track_caller]
    #[expect(clippy::panic, reason = "a real host would not have loaded the extension")]
    fn read<E: Extension>(&self) -> E::Parameters {
        match self.run(|| E::Parameters::from_config(&Config::HOST)) {
            Ok(parameters) => parameters,
            Err(reason) => panic!("annex_sdk::testing: {reason}"),
        }
    }
}
