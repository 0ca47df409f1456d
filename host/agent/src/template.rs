//! Instruction templates: text with `{variables}` from the session state. The syntax is ADK's.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use annex_protocol::Json;
use regex::Regex;

/// The prefix that marks the name of an artifact between braces. The keys that `lookup` gets have it too.
pub(crate) const ARTIFACT_PREFIX: &str = "artifact.";
/// The prefix of a text that is inserted with its braces and not looked up.
const LITERAL_PREFIX: &str = "literal:";

/// The reason why a template could not be rendered. Rendering stops at the first problem; there is no partial result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A variable has no value and is not optional.
    #[error("Context variable not found: `{name}`.")]
    Missing {
        /// The full key of the variable.
        name: String,
    },
    /// An artifact does not exist and is not optional.
    #[error("Artifact not found: `{name}`.")]
    ArtifactMissing {
        /// The name of the artifact, without `artifact.`.
        name: String,
    },
    /// The rendered text is too long.
    #[error("The instruction has more than {limit} bytes with its variables.")]
    TooLong {
        /// The largest allowed size, in bytes.
        limit: usize,
    },
    /// The template has too many variables or artifacts.
    #[error("The template asks for {given} {what}; at most {most} are allowed.")]
    TooMany {
        /// The kind of items that exceed their limit: `variables` or `artifacts`.
        what: &'static str,
        /// The number of variables or artifacts in the template.
        given: usize,
        /// The largest allowed number.
        most: usize,
    },
}

/// The maximum number of variables of a template. Repeated variables count each time, because each one is looked up at
/// every call of the model.
const MAX_VARIABLES: usize = 1_000;
/// The maximum number of artifacts of a template. Each artifact is read from the store.
const MAX_ARTIFACTS: usize = 64;

/// The maximum size of a rendered template, in bytes.
const MAX_BYTES: usize = 4 << 20;

/// A pattern for an identifier of Unicode, as in Python.
const IDENTIFIER: &str = r"[_\p{XID_Start}]\p{XID_Continue}*";

/// Matches the names of state keys that may stand between braces.
static STATE_KEY: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(&format!("^(?:app:|user:|temp:)?{IDENTIFIER}$")).expect("the pattern is a constant"));

/// Matches an opening brace and a name without a closing brace: the next brace opens another pair, or the text ends.
static UNCLOSED: LazyLock<Regex> = LazyLock::new(|| {
    let name = format!(r"(?:app:|user:|temp:|artifact\.)?{IDENTIFIER}\??");
    Regex::new(&format!(r"^\{{({name})[^{{}}]*(?:\{{|$)")).expect("the pattern is a constant")
});

/// Replaces each `{name}` with its value. `lookup` gets full keys such as `user:name`. For an artifact it gets
/// `artifact.` and the artifact's name, which cannot be a state key.
///
/// - `{name?}` is optional: a missing value is not an error and inserts nothing.
/// - White space inside the braces is ignored. Repeated braces are one pair: `{{name}}` is a variable too.
/// - A placeholder consumes as many closing braces as it has opening ones, so `{"key": {name}}` stays JSON.
/// - `${name}` and `\{name}` stay unchanged. So do braces around anything except a state key: `{}`, `{a.b}`,
///   `{"a": 1}`, `{other:name}`.
/// - A string is inserted unchanged and not searched for placeholders. `null` inserts nothing. Any other value inserts
///   its JSON text.
/// - `{artifact.name}` inserts the text of an artifact of the session. The name may contain anything except braces.
/// - `{literal:name}` inserts `{name}`: braces around any text without braces, which is not looked up.
///
/// # Errors
/// See [`TemplateError`].
///
/// ```
/// use annex_agent::render;
/// use annex_protocol::Json;
///
/// let text = render("Greet {name}{title?}.", |key| (key == "name").then(|| Json::string("Ada")))?;
/// assert_eq!(text, "Greet Ada.");
/// # Ok::<(), annex_agent::TemplateError>(())
/// ```
pub fn render(template: &str, mut lookup: impl FnMut(&str) -> Option<Json>) -> Result<String, TemplateError> {
    let mut output = String::with_capacity(template.len());
    let mut rest = template;
    // The text between the first closing brace and the last opening brace before it has no braces in it.
    while let Some((head, tail)) = rest.find('}').map(|close| rest.split_at(close)) {
        let after = tail.trim_start_matches('}');
        let closing = tail.len() - after.len();
        let placeholder = head.rsplit_once('{').map(|(before, inside)| (before.trim_end_matches('{'), inside));
        let value = match placeholder {
            Some((before, inside)) if !before.ends_with(['$', '\\']) => evaluate(inside.trim(), &mut lookup)?,
            Some(_) | None => None,
        };
        match (placeholder, value) {
            (Some((before, inside)), Some(value)) => {
                let opening = head.len() - before.len() - inside.len();
                output.push_str(before);
                // The value is not searched for placeholders, because a client may have set it, and could otherwise
                // read other keys.
                if output.len() + value.len() > MAX_BYTES {
                    return Err(TemplateError::TooLong { limit: MAX_BYTES });
                }
                output.push_str(&value);
                output.extend(std::iter::repeat_n('}', closing.saturating_sub(opening)));
            }
            _ => output.push_str(rest.strip_suffix(after).unwrap_or(rest)),
        }
        rest = after;
    }
    output.push_str(rest);
    Ok(output)
}

/// Checks that the template is cheap to render. Used for templates of tenants that are not trusted.
///
/// # Errors
/// [`TemplateError::TooMany`]
pub fn check_template(template: &str) -> Result<(), TemplateError> {
    let mut variables = 0;
    // Each variable gets a value, so none is missing.
    render(template, |_| {
        variables += 1;
        Some(Json::string(""))
    })?;
    let counts =
        [("variables", variables, MAX_VARIABLES), ("artifacts", artifact_names(template).len(), MAX_ARTIFACTS)];
    match counts.into_iter().find(|(_, given, most)| given > most) {
        Some((what, given, most)) => Err(TemplateError::TooMany { what, given, most }),
        None => Ok(()),
    }
}

/// Finds the first placeholder without a closing brace, as in `You answer {user_info.`, and returns its name. Such a brace
/// stays text. `None` if every placeholder is closed. A brace before anything other than a name counts as text, as in `{"a":
/// 1`.
#[must_use]
pub fn unclosed_placeholder(template: &str) -> Option<&str> {
    let braces = template.match_indices('{').map(|(place, _)| template.split_at(place));
    let open = braces.filter(|(before, _)| !before.ends_with(['$', '\\']));
    open.filter_map(|(_, rest)| UNCLOSED.captures(rest)?.get(1)).map(|name| name.as_str()).next()
}

/// The names of the artifacts in a template.
pub(crate) fn artifact_names(template: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    if !template.contains(ARTIFACT_PREFIX) {
        return names;
    }
    // Each variable gets a value, so none is missing. The rendered text is not used.
    let _ = render(template, |key| {
        names.extend(key.strip_prefix(ARTIFACT_PREFIX).map(str::to_owned));
        Some(Json::string(""))
    });
    names
}

/// Returns the text that replaces a placeholder. `inside` is the text between the braces. `None` if that text is not a
/// placeholder.
fn evaluate(inside: &str, mut lookup: impl FnMut(&str) -> Option<Json>) -> Result<Option<String>, TemplateError> {
    if let Some(literal) = inside.strip_prefix(LITERAL_PREFIX) {
        return Ok(Some(format!("{{{literal}}}")));
    }
    let (name, optional) = inside.strip_suffix('?').map_or((inside, false), |name| (name, true));
    let artifact = name.strip_prefix(ARTIFACT_PREFIX);
    if artifact.is_none() && !STATE_KEY.is_match(name) {
        return Ok(None);
    }
    match (lookup(name), artifact) {
        (Some(value), _) => Ok(Some(plain_text(&value))),
        (None, _) if optional => Ok(Some(String::new())),
        (None, Some(artifact)) => Err(TemplateError::ArtifactMissing { name: artifact.to_owned() }),
        (None, None) => Err(TemplateError::Missing { name: name.to_owned() }),
    }
}

fn plain_text(value: &Json) -> String {
    match value.get() {
        "null" => String::new(),
        // Only a string is read: for all others there is an error to be made, and thrown away.
        text if !text.starts_with('"') => text.to_owned(),
        text => value.to().unwrap_or_else(|_| text.to_owned()),
    }
}
