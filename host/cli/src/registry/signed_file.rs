//! Signatures of files on this machine. The signature of a file lies beside it.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use annex_files::Purpose;
use annex_registry::Digest;
use annex_trust::MAX_BUNDLE_BYTES;
use anyhow::{Context, anyhow};

use super::checksums::{self, Checksum};
use super::keys;
use crate::exit::Failure;
use crate::{new_file, output};

/// The end of the name of a signature.
const SIGNATURE_END: &str = ".sigstore.json";
/// The permissions of a signature.
const MODE: u32 = 0o644;
/// The maximum size of a file that is signed or compared with a checksum, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 30;
/// A file with this name has to be a list of checksums.
const LIST_NAME: &str = "SHA256SUMS";
/// The maximum size of a list in bytes.
const MAX_LIST_BYTES: usize = 1 << 20;
/// The maximum number of files in a list.
const MAX_LISTED: usize = 1_000;
/// The maximum number of bytes with which a message lists files.
const MAX_NAMES: usize = 2_000;

/// Signs a file, and prints the name of the signature.
pub(super) fn sign(file: &Path, key: &Path) -> anyhow::Result<()> {
    let key = keys::read(key)?;
    let signature = keys::with_end(file, SIGNATURE_END);
    if fs::symlink_metadata(&signature).is_ok() {
        let (signature, file) = (signature.display(), file.display());
        return Err(anyhow!("{signature} is there already; remove it to sign {file} again"));
    }
    let digest = digest(file).with_context(|| cannot_read(file))?;
    let bundle = annex_trust::sign(&key, digest.as_str(), &name(file))?;
    new_file::write(&signature, &bundle, MODE)?;
    output::note(&format!("signed by the key {}", key.public().id()));
    output::show(&format!("{}\n", annex_text::line(&signature.display().to_string())))
}

/// Verifies the signature of a file. In a list of checksums, verifies each file that lies beside the list too.
pub(super) fn verify(file: &Path, keys: &[String]) -> anyhow::Result<()> {
    let [key] = keys else {
        return Err(Failure::Usage.error("a file has one signature, so name one key with --key FILE"));
    };
    let public = keys::read_public(Path::new(key))?;
    let (digest, start) = digest_and_start(file).with_context(|| cannot_read(file))?;
    let bundle = read_signature(file)?;
    annex_trust::verify_file(&file.display().to_string(), digest.as_str(), &bundle, &public)
        .map_err(|refusal| Failure::Refused.of(refusal))?;
    output::note(&format!("signed by {key}"));
    verified(&name(file))?;
    match list(file, &start)? {
        Some(checksums) => verify_listed(file, &checksums),
        None => Ok(()),
    }
}

fn read_signature(file: &Path) -> anyhow::Result<Vec<u8>> {
    let signature = keys::with_end(file, SIGNATURE_END);
    let (file, shown) = (file.display(), signature.display());
    annex_files::read(&signature, Purpose::Named, MAX_BUNDLE_BYTES).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::Refused.error(format!("{file} has no signature: {shown} is missing")),
        _ => anyhow!(error).context(format!("cannot read {shown}")),
    })
}

/// The checksums in a file that starts with these bytes. `None` if the file is no list.
fn list(file: &Path, start: &[u8]) -> anyhow::Result<Option<Vec<Checksum>>> {
    let shown = file.display();
    let refused = |reason: String| Err(Failure::Refused.error(format!("{shown} is no list of checksums: {reason}")));
    if name(file) != LIST_NAME && !checksums::is_list(&String::from_utf8_lossy(start)) {
        return Ok(None);
    }
    if start.len() > MAX_LIST_BYTES {
        return refused(format!("it is larger than {MAX_LIST_BYTES} bytes"));
    }
    let Ok(text) = str::from_utf8(start) else { return refused("it is not UTF-8".to_owned()) };
    match checksums::parse(text) {
        Ok(checksums) if checksums.len() > MAX_LISTED => {
            refused(format!("it names {} files; at most {MAX_LISTED} are read", checksums.len()))
        }
        Ok(checksums) => Ok(Some(checksums)),
        Err(line) => refused(format!(
            "line {line} has to be a SHA-256 in lower case, two spaces and the name of a file in the same folder"
        )),
    }
}

/// Compares each file that lies beside the list with its checksum.
fn verify_listed(list: &Path, checksums: &[Checksum]) -> anyhow::Result<()> {
    let (mut missing, mut changed) = (Vec::new(), Vec::new());
    for Checksum { digest: expected, name } in checksums {
        let file = list.with_file_name(name);
        match digest(&file) {
            Ok(found) if found == *expected => verified(name)?,
            Ok(_) => changed.push(name.as_str()),
            Err(error) if error.kind() == ErrorKind::NotFound => missing.push(name.as_str()),
            Err(error) => return Err(anyhow!(error).context(cannot_read(&file))),
        }
    }
    let shown = list.display();
    if !missing.is_empty() {
        output::note(&format!("not there, so not verified: {}", joined(&missing)));
    }
    if !changed.is_empty() {
        let reason = format!("the digest in {shown} is another one for: {}", joined(&changed));
        return Err(Failure::Refused.error(reason));
    }
    if missing.len() == checksums.len() {
        return Err(anyhow!("no file that {shown} names lies beside it"));
    }
    Ok(())
}

fn verified(name: &str) -> anyhow::Result<()> {
    output::write(&format!("{}: verified\n", annex_text::line(name)))
}

fn joined(names: &[&str]) -> String {
    annex_text::line_within(&names.join(", "), MAX_NAMES)
}

fn name(file: &Path) -> String {
    file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn digest(file: &Path) -> io::Result<Digest> {
    Digest::of_reader(open(file)?, MAX_FILE_BYTES)
}

/// The digest of a file, and its first bytes: all of a list, and one byte more of a larger file. Both are read once, so that the
/// list is the one that was signed.
fn digest_and_start(file: &Path) -> io::Result<(Digest, Vec<u8>)> {
    let opened = open(file)?;
    let limit = u64::try_from(MAX_LIST_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    let mut start = Vec::new();
    (&opened).take(limit).read_to_end(&mut start)?;
    let digest = Digest::of_reader(start.as_slice().chain(&opened), MAX_FILE_BYTES)?;
    Ok((digest, start))
}

/// Opens a file that others cannot change after it was verified.
fn open(file: &Path) -> io::Result<File> {
    annex_files::open(file, Purpose::Named)
}

fn cannot_read(file: &Path) -> String {
    format!("cannot read {}", file.display())
}
