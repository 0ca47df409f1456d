//! The caller of the turn, restricted by the grant `caller`.

use crate::caller::VisibleCaller;
use crate::confinement::store::HostState;

impl HostState {
    /// The part of the caller that the grant shows, or the reason for an error.
    pub(crate) fn current_caller(&self) -> Result<VisibleCaller, String> {
        let caller = self.turn.as_ref().and_then(|turn| turn.caller());
        match (caller, &self.profile.grants.caller) {
            (Some(caller), Some(grant)) => caller.shown_by(grant),
            _ => Err("there is no caller here, as at load".to_owned()),
        }
    }
}
