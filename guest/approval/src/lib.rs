//! Approvals: a call of a tool waits until people allow it, and a task completes once its result is accepted.
//!
//! This file has the hooks. [`record`] stores requests, [`decisions`] counts decisions, [`wire`] reads and writes metadata,
//! [`digest`] binds a decision to the content that the approver saw, and [`course`] has the course of calls and results.

pub mod course;
pub mod decisions;
pub mod digest;
pub mod parameters;
pub mod record;
pub mod wire;

#[cfg(test)]
mod tests;

use std::cell::RefCell;

use annex_sdk::{
    Answer, Beginning, Card, Declaration, Descriptor, Entry, Extension, Interruption, Json, Location, Message, Method,
    MethodDeclaration, Pause, Presence, ReadyAnswer, Rejection, Remark, Reply, Request, Rewrite, Ruling, StateChange,
    Steering, ToolCall, ToolVerdict, Transition, Violation, Waiting, caller, log, pointer,
};

use crate::decisions::Decision;
use crate::parameters::{PARAMETER_SCHEMA, Parameters};
use crate::record::Record;

/// The states in which a task ends.
const FINAL: [&str; 4] = ["TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"];

/// The extension. The type has no data: each hook gets the parameters as an argument.
#[derive(Debug)]
pub struct Approval;

/// The data that the hooks of one turn share. An instance serves one turn.
#[derive(Default)]
struct Turn {
    /// The task.
    task: String,
    /// The decision in the message.
    decision: Option<Decision>,
    /// True if an approver has accepted the result of the task, or has rejected the result.
    is_settled: bool,
    /// True if the turn has a request that waits. The client is shown the first one of a turn and no other.
    has_request: bool,
}

thread_local! {
    static TURN: RefCell<Turn> = RefCell::default();
}

impl Extension for Approval {
    type Parameters = Parameters;
    const PARAMETER_SCHEMA: Option<&'static str> = Some(PARAMETER_SCHEMA);

    fn descriptor(parameters: &Parameters) -> Result<Descriptor, String> {
        parameters.check()?;
        Ok(Descriptor {
            name: "approval".to_owned(),
            metadata_keys: vec![parameters.uri().to_owned()],
            ..Descriptor::new(parameters.uri(), "Lets calls of tools and results wait for an approval.")
        })
    }
}

impl Card for Approval {
    fn declare(parameters: &Parameters) -> Result<Declaration, String> {
        Ok(Declaration { description: None, params: Some(parameters.card_params()) })
    }
}

impl Message for Approval {
    fn check(parameters: &Parameters, request: Request, message: Json) -> Result<Vec<Rewrite>, Rejection> {
        let place = pointer::metadata(Location::Message, parameters.uri());
        let refuse = |place: String, reason: String| Rejection::from(Violation::new(place, reason));
        let decision = wire::read(parameters, &message).map_err(|reason| refuse(place.clone(), reason))?;
        if let Some(decision) = &decision {
            let Some(task) = request.task_id else {
                return Err(refuse("/message/taskId".to_owned(), "is required beside a decision".to_owned()));
            };
            let checked = caller::current().and_then(|caller| decisions::check(parameters, &caller, &task, decision));
            match checked.map_err(|reason| refuse(place.clone(), format!("cannot be checked: {reason}")))? {
                Ok(_) => {}
                Err(fault) if fault.member == Some("task") => {
                    return Err(refuse("/message/taskId".to_owned(), fault.reason));
                }
                Err(fault) => {
                    let place = fault.member.map_or(place.clone(), |member| pointer::child(&place, member));
                    return Err(refuse(place, fault.reason));
                }
            }
        }
        TURN.with_borrow_mut(|turn| turn.decision = decision);
        Ok(Vec::new())
    }
}

impl Transition for Approval {
    fn begin(parameters: &Parameters, _request: Request, beginning: Beginning) -> Result<Entry, String> {
        let decision = TURN.with_borrow_mut(|turn| {
            turn.task.clone_from(&beginning.task_id);
            turn.is_settled = false;
            turn.has_request = false;
            turn.decision.take()
        });
        if let Some(decision) = decision {
            let caller = caller::current()?;
            // The decision of a turn that is made again was counted in its first run.
            if caller.presence != Presence::Earlier {
                match decisions::cast(parameters, &caller, &beginning.task_id, &decision) {
                    Ok(Ok(_)) => {}
                    // Between the check and here, somebody else was faster.
                    Ok(Err(fault)) => log::info(&format!("a decision does not count: it {}", fault.reason)),
                    Err(error) if record::is_full(&error) => {
                        log::info(&format!("a decision does not count: {error}"));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(Entry::Proceed)
    }

    fn change(parameters: &Parameters, change: StateChange) -> Result<Ruling, String> {
        let is_settled = TURN.with_borrow(|turn| turn.is_settled);
        if parameters.acceptance && change.next == "TASK_STATE_COMPLETED" && !is_settled {
            return match course::ask_for_acceptance(parameters, &change) {
                Ok((text, metadata)) => Ok(Ruling::Interrupt(Interruption { waiting: Waiting::Input, text, metadata })),
                Err(error) if record::is_full(&error) => {
                    log::info(&format!("a result is not asked about: {error}"));
                    Ok(Ruling::Veto(format!("The result was not accepted: {}.", course::FULL)))
                }
                Err(error) => Err(error),
            };
        }
        // Tasks that are begun and cancelled must not fill the keys.
        if FINAL.contains(&change.next.as_str()) {
            // The task ends in any case. What stays is removed once it has expired.
            if let Err(error) = Record::remove_waiting(&change.task_id) {
                log::info(&format!("the request of a task that has ended is not removed: {error}"));
            }
        }
        Ok(Ruling::Pass)
    }
}

impl Reply for Approval {
    fn before_agent(parameters: &Parameters, _: Request, _: Json) -> Result<Option<ReadyAnswer>, String> {
        if !parameters.acceptance {
            return Ok(None);
        }
        let answer = course::answer(parameters, &TURN.with_borrow(|turn| turn.task.clone()))?;
        TURN.with_borrow_mut(|turn| turn.is_settled = answer.is_some());
        Ok(answer)
    }
}

impl Steering for Approval {
    fn before_tool(parameters: &Parameters, call: ToolCall) -> Result<(ToolVerdict, Option<Remark>), String> {
        if !parameters.covers(&call.name) && !call.has_waited {
            return Ok((ToolVerdict::Pass, None));
        }
        let (task, is_first) = TURN.with_borrow(|turn| (turn.task.clone(), !turn.has_request));
        let fate = course::before_call(parameters, &task, &call, is_first)?;
        if matches!(fate, course::Fate::Waits(..)) {
            TURN.with_borrow_mut(|turn| turn.has_request = true);
        }
        let verdict = match fate {
            course::Fate::Made => ToolVerdict::Pass,
            course::Fate::Denied(text) => ToolVerdict::Deny(text),
            course::Fate::Waits(text, metadata) => ToolVerdict::Wait(Pause { authorization: false, text, metadata }),
        };
        Ok((verdict, None))
    }
}

impl Method for Approval {
    fn methods(_: &Parameters) -> Result<Vec<MethodDeclaration>, String> {
        Ok(vec![MethodDeclaration {
            params_schema: Some(course::PARAMS.to_owned()),
            result_schema: Some(course::RESULT.to_owned()),
            ..MethodDeclaration::new(course::DECIDE, "Decides about a call or a result that waits for an approval.")
        }])
    }

    fn call(parameters: &Parameters, _request: Request, _name: &str, params: Json) -> Result<Answer, Rejection> {
        course::decide(parameters, &params).map(Answer::Value)
    }
}

annex_sdk::export!(Approval: card, message, transition, reply, steering, method);
