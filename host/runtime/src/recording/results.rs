//! Converts results of the chain to the results of recorded steps.

use annex_protocol::{A2aError, Json};

use super::step::StepResult;
use crate::error::{Fault, HookError};
use crate::observation::metrics::CallOutcome;

impl From<&Fault> for StepResult {
    fn from(fault: &Fault) -> Self {
        Self::Failed { kind: CallOutcome::from(fault).name().to_owned(), reason: fault.text() }
    }
}

impl From<&HookError> for StepResult {
    fn from(error: &HookError) -> Self {
        let refusal = match error {
            HookError::Refused(refusal) => refusal,
            HookError::Fault(fault) => return Self::from(fault),
        };
        let data = match refusal {
            A2aError::InvalidParams { violations } => Json::from_serialize(violations).ok(),
            A2aError::Extension { data, .. } => data.clone(),
            _ => None,
        };
        Self::Refused { code: refusal.code(), message: refusal.to_string(), data }
    }
}
