//! Reads and checks the methods that a component declares.

use std::sync::Arc;
use std::time::Duration;

use annex_protocol::jsonrpc::is_reserved;
use annex_schema::Schema;

use crate::confinement::profile::Profile;
use crate::contract::MethodDeclaration;
use crate::error::LoadError;
use crate::hook::Hook;
use crate::load::descriptor::Descriptor;
use crate::load::method::Method;
use crate::load::program::Program;

/// Maximum number of methods of one extension.
const MAX_METHODS: usize = 64;
/// Maximum length of a method name, in bytes.
const MAX_NAME: usize = 128;
/// Maximum length of the description of a method, in bytes.
const MAX_DESCRIPTION: usize = 1 << 10;

/// Calls `declare-methods` and checks the result.
pub(super) async fn declared(
    program: &Program,
    profile: &Arc<Profile>,
    descriptor: &Descriptor,
) -> Result<Vec<Method>, LoadError> {
    let hooks = &program.hooks;
    if !hooks.has(Hook::Method) {
        return Ok(Vec::new());
    }
    let mut instance = super::start(program, profile, Hook::Method).await?;
    let declared = instance
        .call(Hook::Method, async |store, component| hooks.declare_methods(store, component).await)
        .await
        .map_err(LoadError::SelfTest)?;
    let wrong = |reason: String| LoadError::Description { reason: profile.words(&reason) };
    let declared = declared.map_err(wrong)?;
    if declared.len() > MAX_METHODS {
        return Err(wrong(format!("it has {} methods; at most {MAX_METHODS} are allowed", declared.len())));
    }
    // Over HTTP the path of a method contains the extension's name, so the name must be one path segment.
    if !is_word(&descriptor.name) {
        let name = &descriptor.name;
        return Err(wrong(format!(
            "it has methods, and its name {name:?} is not a word of letters, digits, _, - and ."
        )));
    }
    let mut spent = Duration::ZERO;
    let mut methods: Vec<Method> = Vec::with_capacity(declared.len());
    for declaration in declared {
        if methods.iter().any(|method| method.name == declaration.name) {
            return Err(wrong(format!("it declares the method {:?} twice", declaration.name)));
        }
        methods.push(checked(profile, declaration, &mut spent).await.map_err(wrong)?);
    }
    Ok(methods)
}

async fn checked(profile: &Profile, declaration: MethodDeclaration, spent: &mut Duration) -> Result<Method, String> {
    let name = declaration.name;
    if name.len() > MAX_NAME || !name.split('/').all(is_word) {
        return Err(format!(
            "the method name {name:?} is not made of words of letters, digits, _, - and . with / between them, \
             {MAX_NAME} bytes at most"
        ));
    }
    if is_reserved(&name) {
        return Err(format!("the method {name:?} is a core method; an extension cannot replace it"));
    }
    let wrong = |what: &str, reason: String| format!("the {what} schema of the method {name:?}: {reason}");
    let params =
        compiled(profile, declaration.params_schema, spent).await.map_err(|reason| wrong("parameter", reason))?;
    let result = compiled(profile, declaration.result_schema, spent).await.map_err(|reason| wrong("result", reason))?;
    Ok(Method {
        params,
        result,
        description: annex_text::line_within(&declaration.description, MAX_DESCRIPTION),
        streams: declaration.streams,
        name,
    })
}

/// Compiles a schema, which is kept as long as the extension is installed. Compiling all schemas together may take the
/// wall-clock limit of one call.
async fn compiled(
    profile: &Profile,
    schema: Option<String>,
    spent: &mut Duration,
) -> Result<Option<Arc<Schema>>, String> {
    let Some(schema) = schema else { return Ok(None) };
    let allowed = profile.limits.wall.saturating_sub(*spent);
    let compiled = profile.schemas.pin(&schema, profile.services.validators.pinned(), allowed, spent).await;
    compiled.map(Some).map_err(|error| error.to_string())
}

/// True if the text can be a path segment.
fn is_word(text: &str) -> bool {
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
    plain && !text.is_empty() && !text.bytes().all(|byte| byte == b'.')
}

#[cfg(test)]
mod tests {
    use super::is_word;

    #[test]
    fn a_word_cannot_leave_its_place_in_a_path() {
        for word in ["search", "tasks.v2", "a-b_c", "1"] {
            assert!(is_word(word), "{word}");
        }
        for text in ["", ".", "..", "a b", "a/b", "%2e", "ä", "a?b", "{name}"] {
            assert!(!is_word(text), "{text}");
        }
    }
}
