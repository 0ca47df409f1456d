//! Generates the types and the services from the proto files, without a protoc binary.

use std::path::PathBuf;
use std::{env, fs};

use anyhow::Context;

/// The messages that contain push credentials. They get no derived `Debug`. Their `Debug` in `pb.rs` omits the
/// credentials.
const SECRETIVE: &[&str] = &[
    ".lf.a2a.v1.TaskPushNotificationConfig",
    ".lf.a2a.v1.AuthenticationInfo",
    ".a2a.v1.PushNotificationConfig",
    ".a2a.v1.AuthenticationInfo",
];

/// The proto files of the services that are always served.
const CURRENT: &[&str] = &["lf/a2a/v1/a2a.proto", "annex/extension/v1/extension.proto"];
/// The proto file of A2A 0.3.
const OLDER: &[&str] = &["a2a/v1/a2a.proto"];

fn main() -> anyhow::Result<()> {
    println!("cargo::rerun-if-changed=proto");
    let out = PathBuf::from(env::var_os("OUT_DIR").context("cargo sets OUT_DIR")?);

    // Each version has a descriptor set of its own, because a server may serve 1.0 alone.
    for (files, descriptors) in [(CURRENT, "a2a.bin"), (OLDER, "a2a_v0_3.bin")] {
        let mut compiler = protox::Compiler::new(["proto"])?;
        compiler.include_imports(true).open_files(files)?;
        // For reflection: encoded by protox itself, which keeps the HTTP annotations.
        fs::write(out.join(descriptors), compiler.encode_file_descriptor_set())?;

        tonic_prost_build::configure()
            .build_transport(false)
            .codec_path("crate::codec::A2aCodec")
            .btree_map(".")
            .skip_debug(SECRETIVE)
            .compile_fds(compiler.file_descriptor_set())?;
    }
    Ok(())
}
