//! `[[extension]]`: one installed extension.

use std::path::Path;
use std::time::Duration;

use annex_protocol::{Json, JsonObject};
use annex_runtime::{Installation, Limits, MEMORY_CEILING};
use serde::Deserialize;

use super::grants::GrantsConfig;

/// One installed extension.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtensionConfig {
    /// A path, relative to the config, or the bare name of a component that ships with Annex.
    pub component: String,
    /// Refuse requests that do not activate it. Default false.
    #[serde(default)]
    pub required: bool,
    /// What it may do. Default nothing.
    #[serde(default)]
    pub grants: GrantsConfig,
    /// What it may use.
    #[serde(default)]
    pub limits: LimitsConfig,
    /// Its own parameters.
    #[serde(default)]
    pub parameters: toml::Table,
}

/// `[extension.limits]`; what is absent has the value of [`Limits::standard`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Linear memory in MiB, at most 64.
    pub memory_mib: Option<usize>,
    /// CPU time per call in milliseconds.
    pub cpu_ms: Option<u64>,
    /// Time on the clock per call in milliseconds.
    pub wall_ms: Option<u64>,
    /// Host calls per turn.
    pub host_calls: Option<u32>,
    /// Metadata bytes handed to one hook.
    pub input_bytes: Option<usize>,
    /// Bytes that one call may hand to the host.
    pub output_bytes: Option<usize>,
    /// Log lines per turn.
    pub log_lines: Option<u32>,
}

impl ExtensionConfig {
    /// What the runtime is told; files are looked for in `folder`.
    ///
    /// # Errors
    /// The key and what is wrong with its value.
    pub(crate) fn installation(&self, folder: &Path) -> Result<Installation, (&'static str, String)> {
        let parameters = self.parameters.iter().map(|(key, value)| Ok((key.clone(), json(value)?)));
        let parameters = parameters.collect::<Result<JsonObject, String>>().map_err(|reason| ("parameters", reason))?;
        Ok(Installation {
            grants: self.grants.to_grants(folder)?,
            limits: self.limits.to_limits()?,
            parameters,
            required: self.required,
        })
    }
}

impl LimitsConfig {
    fn to_limits(&self) -> Result<Limits, (&'static str, String)> {
        let standard = Limits::standard();
        let ceiling = MEMORY_CEILING >> 20;
        if self.memory_mib.is_some_and(|mib| mib == 0 || mib > ceiling) {
            return Err(("limits.memory_mib", format!("must be between 1 and {ceiling}")));
        }
        if self.cpu_ms == Some(0) || self.wall_ms == Some(0) {
            return Err(("limits", "cpu_ms and wall_ms must be at least 1".to_owned()));
        }
        Ok(Limits {
            memory: self.memory_mib.map_or(standard.memory, |mib| mib << 20),
            table_elements: standard.table_elements,
            cpu: self.cpu_ms.map_or(standard.cpu, Duration::from_millis),
            wall: self.wall_ms.map_or(standard.wall, Duration::from_millis),
            host_calls: self.host_calls.unwrap_or(standard.host_calls),
            input: self.input_bytes.unwrap_or(standard.input),
            output: self.output_bytes.unwrap_or(standard.output),
            log_lines: self.log_lines.unwrap_or(standard.log_lines),
            log_line: standard.log_line,
        })
    }
}

/// TOML as JSON. Dates become strings; numbers that JSON does not have are refused.
fn json(value: &toml::Value) -> Result<Json, String> {
    let value = json_value(value)?;
    Json::from_serialize(&value).map_err(|error| error.to_string())
}

fn json_value(value: &toml::Value) -> Result<serde_json::Value, String> {
    Ok(match value {
        toml::Value::String(text) => text.as_str().into(),
        toml::Value::Integer(number) => (*number).into(),
        toml::Value::Float(number) => {
            serde_json::Number::from_f64(*number).ok_or_else(|| format!("{number} is not a number in JSON"))?.into()
        }
        toml::Value::Boolean(flag) => (*flag).into(),
        toml::Value::Datetime(date) => date.to_string().into(),
        toml::Value::Array(items) => items.iter().map(json_value).collect::<Result<Vec<_>, _>>()?.into(),
        toml::Value::Table(table) => {
            let entries = table.iter().map(|(key, value)| Ok((key.clone(), json_value(value)?)));
            entries.collect::<Result<serde_json::Map<_, _>, String>>()?.into()
        }
    })
}
