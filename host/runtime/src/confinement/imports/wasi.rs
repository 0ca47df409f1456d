//! WASI interfaces that wasmtime implements, with an empty context: no files, environment, arguments, network or
//! input. Components import them if their toolchain has a standard library.

use wasmtime::component::{HasData, Resource, ResourceTable};
use wasmtime_wasi::cli::{WasiCli, WasiCliView as _};
use wasmtime_wasi::clocks::{WasiClocks, WasiClocksView as _};
use wasmtime_wasi::filesystem::{WasiFilesystem, WasiFilesystemView as _};
use wasmtime_wasi::p2::bindings::{cli, clocks, filesystem, io, random, sockets};
use wasmtime_wasi::random::{WasiRandom, WasiRandomView as _};
use wasmtime_wasi::sockets::{WasiSockets, WasiSocketsView as _};
use wasmtime_wasi::{WasiCtxView, WasiView};
use wasmtime_wasi_http::p2::bindings::http::{outgoing_handler, types as http_types};
use wasmtime_wasi_http::{WasiHttp, WasiHttpCtxView, WasiHttpView};

use super::offer::{Offer, free, granted};
use super::wasi_context::Wasi;
use crate::confinement::grants::GrantNeeded;
use crate::confinement::store::HostState;

/// The WASI interfaces, each with the grant that a component needs. Files and sockets need no grant, because the
/// context refuses to open any file or socket.
pub(super) const OFFERS: &[Offer] = &[
    free("wasi:io/error", |linker| io::error::add_to_linker::<_, HasErrors>(linker, |state| Errors(state.resources()))),
    free("wasi:io/poll", |linker| io::poll::add_to_linker::<_, HasIo>(linker, HostState::resources)),
    free("wasi:io/streams", |linker| io::streams::add_to_linker::<_, HasIo>(linker, HostState::resources)),
    free("wasi:cli/environment", |linker| cli::environment::add_to_linker::<_, WasiCli>(linker, HostState::cli)),
    free("wasi:cli/exit", |linker| cli::exit::add_to_linker::<_, WasiCli>(linker, HostState::cli)),
    free("wasi:cli/stdin", |linker| cli::stdin::add_to_linker::<_, WasiCli>(linker, HostState::cli)),
    free("wasi:cli/stdout", |linker| cli::stdout::add_to_linker::<_, WasiCli>(linker, HostState::cli)),
    free("wasi:cli/stderr", |linker| cli::stderr::add_to_linker::<_, WasiCli>(linker, HostState::cli)),
    free("wasi:cli/terminal-input", |linker| cli::terminal_input::add_to_linker::<_, WasiCli>(linker, HostState::cli)),
    free("wasi:cli/terminal-output", |linker| {
        cli::terminal_output::add_to_linker::<_, WasiCli>(linker, HostState::cli)
    }),
    free("wasi:cli/terminal-stdin", |linker| cli::terminal_stdin::add_to_linker::<_, WasiCli>(linker, HostState::cli)),
    free("wasi:cli/terminal-stdout", |linker| {
        cli::terminal_stdout::add_to_linker::<_, WasiCli>(linker, HostState::cli)
    }),
    free("wasi:cli/terminal-stderr", |linker| {
        cli::terminal_stderr::add_to_linker::<_, WasiCli>(linker, HostState::cli)
    }),
    free("wasi:filesystem/types", |linker| {
        filesystem::types::add_to_linker::<_, WasiFilesystem>(linker, HostState::filesystem)
    }),
    free("wasi:filesystem/preopens", |linker| {
        filesystem::preopens::add_to_linker::<_, WasiFilesystem>(linker, HostState::filesystem)
    }),
    free("wasi:sockets/network", |linker| {
        let options = sockets::network::LinkOptions::default();
        sockets::network::add_to_linker::<_, WasiSockets>(linker, &options, HostState::sockets)
    }),
    free("wasi:sockets/instance-network", |linker| {
        sockets::instance_network::add_to_linker::<_, WasiSockets>(linker, HostState::sockets)
    }),
    free("wasi:sockets/ip-name-lookup", |linker| {
        sockets::ip_name_lookup::add_to_linker::<_, WasiSockets>(linker, HostState::sockets)
    }),
    free("wasi:sockets/tcp", |linker| sockets::tcp::add_to_linker::<_, WasiSockets>(linker, HostState::sockets)),
    free("wasi:sockets/tcp-create-socket", |linker| {
        sockets::tcp_create_socket::add_to_linker::<_, WasiSockets>(linker, HostState::sockets)
    }),
    free("wasi:sockets/udp", |linker| sockets::udp::add_to_linker::<_, WasiSockets>(linker, HostState::sockets)),
    free("wasi:sockets/udp-create-socket", |linker| {
        sockets::udp_create_socket::add_to_linker::<_, WasiSockets>(linker, HostState::sockets)
    }),
    // `wasi:clocks/wall-clock` is in `bindings/v0_1/imports.rs`: Annex implements it, so that a guest that only reads
    // the time needs no WASI context.
    granted(GrantNeeded::Clock, "wasi:clocks/monotonic-clock", |linker| {
        clocks::monotonic_clock::add_to_linker::<_, WasiClocks>(linker, HostState::clocks)
    }),
    granted(GrantNeeded::Random, "wasi:random/random", |linker| {
        random::random::add_to_linker::<_, WasiRandom>(linker, HostState::random)
    }),
    granted(GrantNeeded::Random, "wasi:random/insecure", |linker| {
        random::insecure::add_to_linker::<_, WasiRandom>(linker, HostState::random)
    }),
    granted(GrantNeeded::Random, "wasi:random/insecure-seed", |linker| {
        random::insecure_seed::add_to_linker::<_, WasiRandom>(linker, HostState::random)
    }),
    granted(GrantNeeded::Http, "wasi:http/types", |linker| {
        http_types::add_to_linker::<_, WasiHttp>(linker, &http_types::LinkOptions::default(), HostState::http)
    }),
    granted(GrantNeeded::Http, "wasi:http/outgoing-handler", |linker| {
        outgoing_handler::add_to_linker::<_, WasiHttp>(linker, HostState::http)
    }),
];

struct HasIo;

impl HasData for HasIo {
    type Data<'a> = &'a mut ResourceTable;
}

/// Implements `wasi:io/error` in place of wasmtime. wasmtime's text of an error may contain a backtrace of the host
/// (RUST_BACKTRACE), which guests must not see.
struct Errors<'a>(&'a mut ResourceTable);

struct HasErrors;

impl HasData for HasErrors {
    type Data<'a> = Errors<'a>;
}

impl io::error::Host for Errors<'_> {}

impl io::error::HostError for Errors<'_> {
    fn to_debug_string(&mut self, error: Resource<wasmtime::Error>) -> wasmtime::Result<String> {
        let causes = self.0.get(&error)?.chain().map(ToString::to_string);
        Ok(causes.collect::<Vec<_>>().join(": "))
    }

    fn drop(&mut self, error: Resource<wasmtime::Error>) -> wasmtime::Result<()> {
        self.0.delete(error)?;
        Ok(())
    }
}

impl HostState {
    fn wasi(&mut self) -> &mut Wasi {
        // Created on the first WASI call, because most instances make none.
        let made = self.wasi.take();
        let wasi = made.unwrap_or_else(|| Box::new(Wasi::new(&self.log, &self.profile, self.overrides())));
        self.wasi.insert(wasi)
    }

    fn resources(&mut self) -> &mut ResourceTable {
        &mut self.wasi().resources
    }
}

impl WasiView for HostState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let wasi = self.wasi();
        WasiCtxView { ctx: &mut wasi.context, table: &mut wasi.resources }
    }
}

impl WasiHttpView for HostState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        let wasi = self.wasi();
        WasiHttpCtxView { hooks: &mut wasi.hooks, table: &mut wasi.resources, ctx: &mut wasi.http }
    }
}
