//! Enums on the wire.

use annex_protocol::{Role, TaskState};
use serde::de::DeserializeOwned;

const TASK_STATES: [(i32, &str, TaskState); 9] = [
    (0, "TASK_STATE_UNSPECIFIED", TaskState::Unspecified),
    (1, "TASK_STATE_SUBMITTED", TaskState::Submitted),
    (2, "TASK_STATE_WORKING", TaskState::Working),
    (3, "TASK_STATE_COMPLETED", TaskState::Completed),
    (4, "TASK_STATE_FAILED", TaskState::Failed),
    (5, "TASK_STATE_CANCELED", TaskState::Canceled),
    (6, "TASK_STATE_INPUT_REQUIRED", TaskState::InputRequired),
    (7, "TASK_STATE_REJECTED", TaskState::Rejected),
    (8, "TASK_STATE_AUTH_REQUIRED", TaskState::AuthRequired),
];

const ROLES: [(i32, &str, Role); 3] =
    [(0, "ROLE_UNSPECIFIED", Role::Unspecified), (1, "ROLE_USER", Role::User), (2, "ROLE_AGENT", Role::Agent)];

fn read<T: DeserializeOwned>(json: &str) -> Result<T, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}

#[test]
fn every_task_state_is_read_by_name_and_number_and_written_by_name() {
    for (number, name, state) in TASK_STATES {
        for json in [format!("\"{name}\""), number.to_string(), format!("\"{number}\"")] {
            assert_eq!(read(&json), Ok(state), "{json}");
        }
        assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{name}\""));
        assert_eq!((state.name(), state.number(), state.to_string().as_str()), (name, number, name));
    }
    assert_eq!(TASK_STATES.map(|(_, _, state)| state), TaskState::ALL);
}

#[test]
fn every_role_is_read_by_name_and_number_and_written_by_name() {
    for (number, name, role) in ROLES {
        for json in [format!("\"{name}\""), number.to_string(), format!("\"{number}\"")] {
            assert_eq!(read(&json), Ok(role), "{json}");
        }
        assert_eq!(serde_json::to_string(&role).unwrap(), format!("\"{name}\""));
        assert_eq!((role.name(), role.number()), (name, number));
    }
    assert_eq!(ROLES.map(|(_, _, role)| role), Role::ALL);
}

#[test]
fn an_unknown_value_is_refused_with_the_values_that_exist() {
    for json in ["\"user\"", "\"role_user\"", "\"\"", "\"ROLE_SYSTEM\"", "3", "-1", "\"3\"", "18446744073709551615"] {
        let error = read::<Role>(json).unwrap_err();
        assert!(error.contains(json.trim_matches('"')), "{json}: {error}");
        assert!(error.contains("expected one of `ROLE_UNSPECIFIED`, `ROLE_USER`, `ROLE_AGENT`"), "{json}: {error}");
    }
    for json in ["true", "1.5", "{}", "null"] {
        let error = read::<Role>(json).unwrap_err();
        assert!(error.contains("expected the name or the number of a Role"), "{json}: {error}");
    }
}

#[test]
fn terminal_and_interrupted_states_are_those_of_the_specification() {
    let terminal = [TaskState::Completed, TaskState::Failed, TaskState::Canceled, TaskState::Rejected];
    let interrupted = [TaskState::InputRequired, TaskState::AuthRequired];
    for state in TaskState::ALL {
        assert_eq!(state.is_terminal(), terminal.contains(state), "{state}");
        assert_eq!(state.is_interrupted(), interrupted.contains(state), "{state}");
    }
}
