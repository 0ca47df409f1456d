//! `--with` of `annex proxy`: components and their settings as `[[extension]]` tables of a config.

use std::path::{self, Path, PathBuf};

use annex_files::Purpose;
use annex_runtime::{Runtime, RuntimeConfig};
use annex_server::{ExtensionConfig, Locations};
use anyhow::{Context, anyhow};
use toml::{Table, Value};

use crate::exit::Failure;
use crate::inspect::trial;
use crate::{component, progress, serve, shell};

/// The maximum size of a file with settings, in bytes.
const MAX_SETTINGS_BYTES: usize = 1 << 20;

/// Creates an `[[extension]]` table for each argument of `--with`, for a config in `folder`.
///
/// # Errors
/// When a component or its settings cannot be used, or when the component needs grants that the arguments do not give.
pub(super) async fn tables(arguments: &[String], folder: &Path) -> anyhow::Result<Vec<Table>> {
    // Without components no runtime is started.
    if arguments.is_empty() {
        return Ok(Vec::new());
    }
    let config = RuntimeConfig { instances: 1, cache: serve::cache(), ..RuntimeConfig::default() };
    let runtime = Runtime::new(&config).context("the runtime of components does not start")?;
    let _progress = progress::of_compiling();
    let mut tables = Vec::new();
    for argument in arguments {
        let table = table(&runtime, argument, folder).await;
        tables.push(table.with_context(|| format!("--with {argument}"))?);
    }
    Ok(tables)
}

async fn table(runtime: &Runtime, argument: &str, folder: &Path) -> anyhow::Result<Table> {
    // Settings may have a `=` themselves, so the first one ends the name.
    let (component, settings) = argument.split_once('=').map_or((argument, None), |(name, text)| (name, Some(text)));
    let locations = Locations { config: PathBuf::new(), components: serve::components(), cache: None };
    let file = locations.component(component);
    let ships = file.starts_with(&locations.components);
    let bytes = component::named(component, &locations).map_err(|error| Failure::Usage.of(error))?;
    let settings = settings.map_or_else(|| Ok(Settings::default()), Settings::read);
    let Settings { mut table, folder: from } = settings.map_err(|error| Failure::Usage.of(error))?;
    let installation = ExtensionConfig::read_installation(&table.to_string(), &from);
    let installation = installation.map_err(|reason| Failure::Usage.error(format!("settings: {reason}")))?;
    let given = trial::in_config(&installation.grants);
    let trial = trial::load(runtime, &bytes, installation).await;
    let needed = trial::in_config(&trial.grants).into_iter().filter(|grant| !given.contains(grant));
    let needed: Table = needed.collect::<Vec<_>>().join("\n").parse()?;
    if !needed.is_empty() {
        // Shipped components get the grants that they need, because a person who runs Annex trusts them. Other
        // components get only the grants that the person names.
        let is_given = add_grants(&mut table, needed) && ships;
        if !is_given {
            let suggestion = suggestion(component, &table)?;
            return Err(Failure::Usage.error(format!("it needs grants that only you can give: {suggestion}")));
        }
    }
    let loaded = trial.loaded.map(drop);
    loaded
        .with_context(|| format!("it cannot be loaded; annex inspect {component} says what it takes"))
        .map_err(|error| Failure::Refused.of(error))?;
    move_secrets(&mut table, &from, folder)?;
    let name = if ships { component.to_owned() } else { moved(Path::new(component), Path::new(""), folder)? };
    table.insert("component".to_owned(), name.into());
    Ok(table)
}

/// Adds grants to the settings. Returns false if the settings already have a value for one of these grants.
fn add_grants(settings: &mut Table, needed: Table) -> bool {
    let grants = settings.entry("grants").or_insert_with(|| Table::new().into());
    let Some(grants) = grants.as_table_mut() else { return false };
    let is_new = needed.keys().all(|name| !grants.contains_key(name));
    grants.extend(needed);
    is_new
}

/// The `--with` option, quoted for a shell, that installs the component with these settings.
fn suggestion(component: &str, settings: &Table) -> anyhow::Result<String> {
    let settings = serde_json::to_string(settings)?;
    Ok(format!("--with {}", shell::word(&format!("{component}={settings}"))))
}

/// The keys of an `[[extension]]` except `component`, and the folder that their relative paths start in.
#[derive(Default)]
struct Settings {
    table: Table,
    folder: PathBuf,
}

impl Settings {
    /// Reads a JSON object, or `@` and the name of a file with TOML.
    fn read(argument: &str) -> anyhow::Result<Self> {
        let Some(file) = argument.strip_prefix('@') else {
            let table = serde_json::from_str(argument);
            let table = table.context("the settings must be a JSON object, such as '{\"required\":true}', or @FILE")?;
            return Ok(Self { table, folder: PathBuf::new() });
        };
        let text = annex_files::read_text(Path::new(file), Purpose::Named, MAX_SETTINGS_BYTES);
        let text = text.with_context(|| format!("cannot read the file {file}"))?;
        let table = text.parse::<Table>().with_context(|| format!("the file {file} is not TOML"))?;
        let folder = Path::new(file).parent().unwrap_or(Path::new("")).to_owned();
        Ok(Self { table, folder })
    }
}

/// Rewrites the paths of secret files in the settings. A path that is relative to `from` becomes a path that a config
/// in `to` can use.
fn move_secrets(settings: &mut Table, from: &Path, to: &Path) -> anyhow::Result<()> {
    let grants = settings.get_mut("grants").and_then(Value::as_table_mut);
    let secrets = grants.and_then(|grants| grants.get_mut("secrets")?.as_table_mut());
    for secret in secrets.into_iter().flat_map(|secrets| secrets.iter_mut().map(|(_, secret)| secret)) {
        if let Some(Value::String(file)) = secret.get_mut("file") {
            *file = moved(Path::new(&*file), from, to)?;
        }
    }
    Ok(())
}

/// Rewrites the path `file`, which starts at the folder `from`, for a config in the folder `to`. If both are the same
/// folder, the path stays unchanged. Otherwise it becomes absolute.
fn moved(file: &Path, from: &Path, to: &Path) -> anyhow::Result<String> {
    let file = if from == to { file.to_owned() } else { path::absolute(from.join(file))? };
    let text = file.into_os_string().into_string();
    text.map_err(|file| anyhow!("the path {} is not UTF-8, which a config is", file.display()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use toml::Table;

    use super::{Settings, move_secrets, moved, suggestion};

    #[test]
    fn settings_are_json_or_a_file_with_toml() {
        let Settings { table, .. } = Settings::read(r#"{"required":true,"grants":{"clock":true}}"#).expect("JSON");
        assert_eq!(table.to_string(), "required = true\n\n[grants]\nclock = true\n");
        for (wrong, expected) in
            [("required = true", "JSON object"), ("[]", "JSON object"), ("@/nowhere.toml", "/nowhere.toml")]
        {
            let error = Settings::read(wrong).err().map(|error| format!("{error:#}")).unwrap_or_default();
            assert!(error.contains(expected), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_path_leads_to_the_same_file_from_another_folder() {
        assert_eq!(moved(Path::new("x.wasm"), Path::new(""), Path::new("")).expect("a path"), "x.wasm");
        let other = moved(Path::new("x.wasm"), Path::new("/a"), Path::new("/b")).expect("a path");
        assert_eq!(other, "/a/x.wasm");
        let mut settings: Table =
            "grants.secrets = { A = { file = 'key' }, B = { env = 'KEY' } }".parse().expect("TOML");
        move_secrets(&mut settings, Path::new("/a"), Path::new("/b")).expect("a path");
        let secrets = settings.to_string();
        assert!(secrets.contains("/a/key") && secrets.contains("env = \"KEY\""), "{secrets}");
    }

    #[test]
    fn what_only_a_person_gives_is_shown_as_it_is_to_be_typed() {
        let settings: Table = "grants = { clock = true }".parse().expect("TOML");
        let shown = suggestion("./x.wasm", &settings).expect("JSON");
        assert_eq!(shown, r#"--with './x.wasm={"grants":{"clock":true}}'"#);
    }
}
