//! The limits of a config that must be at least 1. A limit of zero would make the server refuse every request.

use super::runtime::RuntimeSection;
use super::server::ServerConfig;
use super::sessions::SessionsConfig;
use super::tasks::TasksConfig;

type Bound = (&'static str, usize);

/// All limits with their keys.
pub(super) fn all(
    of_server: &ServerConfig,
    of_sessions: &SessionsConfig,
    of_tasks: &TasksConfig,
    of_runtime: &RuntimeSection,
) -> impl Iterator<Item = Bound> {
    let sections = [
        server(of_server).to_vec(),
        sessions(of_sessions).to_vec(),
        tasks(of_tasks).to_vec(),
        runtime(of_runtime).to_vec(),
    ];
    sections.into_iter().flatten()
}

pub(super) fn whole(number: u64) -> usize {
    // Callers only compare the result with zero, so a number that does not fit may be cut off.
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn server(server: &ServerConfig) -> [Bound; 14] {
    [
        ("server.body_seconds", whole(server.body_seconds)),
        ("server.head_seconds", whole(server.head_seconds)),
        ("server.write_seconds", whole(server.write_seconds)),
        ("server.max_running_turns", server.max_running_turns),
        ("server.max_running_turns_per_caller", server.max_running_turns_per_caller),
        ("server.max_turn_seconds", whole(server.max_turn_seconds)),
        ("server.max_body_bytes", server.max_body_bytes),
        ("server.max_connections", server.max_connections),
        ("server.max_connections_per_address", server.max_connections_per_address),
        ("server.max_requests_per_connection", whole(server.max_requests_per_connection.into())),
        ("server.max_reading_bytes", server.max_reading_bytes),
        ("server.max_answer_bytes", server.max_answer_bytes),
        ("server.max_streams", server.max_streams),
        ("server.max_streams_per_caller", server.max_streams_per_caller),
    ]
}

fn sessions(sessions: &SessionsConfig) -> [Bound; 8] {
    [
        ("sessions.max_sessions", sessions.max_sessions),
        ("sessions.max_bytes", sessions.max_bytes),
        ("sessions.max_state_bytes", sessions.max_state_bytes),
        ("sessions.max_state_keys", sessions.max_state_keys),
        ("sessions.max_artifacts", sessions.max_artifacts),
        ("sessions.max_artifact_bytes", sessions.max_artifact_bytes),
        ("sessions.keep_days", whole(sessions.keep_days)),
        ("sessions.keep_count", whole(sessions.keep_count)),
    ]
}

fn tasks(tasks: &TasksConfig) -> [Bound; 9] {
    [
        ("tasks.max_tasks", tasks.max_tasks),
        ("tasks.max_bytes", tasks.max_bytes),
        ("tasks.max_task_bytes", tasks.max_task_bytes),
        ("tasks.max_task_messages", tasks.max_task_messages),
        ("tasks.max_task_artifacts", tasks.max_task_artifacts),
        ("tasks.keep_waiting_days", whole(tasks.keep_waiting_days)),
        ("tasks.max_waiting_per_caller", tasks.max_waiting_per_caller),
        ("tasks.keep_days", whole(tasks.keep_days)),
        ("tasks.keep_count", whole(tasks.keep_count)),
    ]
}

fn runtime(runtime: &RuntimeSection) -> [Bound; 5] {
    [
        ("runtime.max_instances", whole(runtime.max_instances.into())),
        ("runtime.cache_bytes", whole(runtime.cache_bytes)),
        ("runtime.compile_seconds", whole(runtime.compile_seconds)),
        ("runtime.compile_memory_bytes", whole(runtime.compile_memory_bytes)),
        ("runtime.compile_processes", whole(runtime.compile_processes.into())),
    ]
}
