//! The cost of the console while nobody looks at it: the record of each request that it could show.

use crate::kind::Kind;
use crate::load::CONNECTIONS;
use crate::process::{ServerProcess, Setup};
use crate::request::Request;
use crate::scale::{Row, table_of};

pub(crate) const PART: (&str, fn() -> anyhow::Result<()>) = ("console: off, and on with nobody watching", measure);

/// A token that nobody has. Its hash is that of no text.
const ADMIN: &str = "[admin]\nlisten = \"127.0.0.1:0\"\n[[admin.token]]\nname = \"nobody\"\n\
    token_sha256 = \"0000000000000000000000000000000000000000000000000000000000000000\"\n";

/// The titles of the servers, and their settings.
const SERVERS: [(&str, &str); 2] = [("off", ""), ("on", ADMIN)];

/// Compares the CPU time of the server per request.
fn measure() -> anyhow::Result<()> {
    for (title, kind) in [("state injected", Kind::Component), ("no extension", Kind::Bare)] {
        let start = |(_, settings)| ServerProcess::start_with(&Setup { settings, ..Setup::new(kind) });
        let servers = SERVERS.into_iter().map(start).collect::<anyhow::Result<Vec<_>>>()?;
        let rows = servers.iter().zip(SERVERS).map(|(server, (console, _))| Row {
            title: format!("{title}, console {console}"),
            server,
            request: Request::injecting(100).expecting(kind.answer()),
            connections: CONNECTIONS,
        });
        table_of(&rows.collect::<Vec<_>>(), Row::round)?;
    }
    Ok(())
}
