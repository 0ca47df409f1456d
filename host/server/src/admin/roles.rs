//! The roles of admin tokens: the requests that the holder of a token may send, and the tenants for which they count.

use std::sync::Arc;

use axum::http::Uri;
use percent_encoding::percent_decode_str;
use url::form_urlencoded;

use crate::config::AdminRole;

/// The permission that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permission {
    Read,
    Operate,
    Install,
}

/// The holder of an admin token.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) name: Arc<str>,
    pub(crate) roles: Arc<Roles>,
}

/// The token of a request lacks a role. The text says which one.
#[derive(Debug)]
pub(crate) struct MissingRole(pub(crate) String);

/// The roles of a token.
#[derive(Debug, Default)]
pub(crate) struct Roles {
    /// `None` for all permissions.
    permissions: Option<Vec<Permission>>,
    /// The tenants for which the permissions count. Empty for the whole server.
    tenants: Vec<String>,
}

impl Permission {
    /// The name of the role with this permission.
    fn role(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Install => "install",
        }
    }
}

impl Roles {
    /// `None` for all roles.
    pub(super) fn of(roles: Option<Vec<AdminRole>>) -> Self {
        let Some(roles) = roles else { return Self::default() };
        let (mut permissions, mut tenants) = (Vec::new(), Vec::new());
        for role in roles {
            match role {
                AdminRole::Read => permissions.push(Permission::Read),
                AdminRole::Operate => permissions.push(Permission::Operate),
                AdminRole::Install => permissions.push(Permission::Install),
                AdminRole::Tenant(name) => tenants.push(name),
            }
        }
        // A role for a tenant alone has all permissions there.
        let has_all = permissions.is_empty() && !tenants.is_empty();
        Self { permissions: (!has_all).then_some(permissions), tenants }
    }

    /// The roles as the config has them, for texts.
    fn names(&self) -> String {
        let permissions = self.permissions.iter().flatten().map(|permission| permission.role().to_owned());
        let tenants = self.tenants.iter().map(|name| format!("tenant:{name}"));
        permissions.chain(tenants).collect::<Vec<_>>().join(", ")
    }
}

impl Holder {
    /// Checks that the holder has the permission for this tenant. `None` is the whole server, to which the agent of the
    /// config itself belongs.
    pub(crate) fn check(&self, permission: Permission, tenant: Option<&str>) -> Result<(), MissingRole> {
        let Roles { permissions, tenants } = &*self.roles;
        let role = permission.role();
        if permissions.as_ref().is_some_and(|permissions| !permissions.contains(&permission)) {
            return Err(self.lacks(&format!("this needs the role `{role}`")));
        }
        match tenant {
            _ if tenants.is_empty() => Ok(()),
            Some(tenant) if tenants.iter().any(|name| name == tenant) => Ok(()),
            Some(tenant) => Err(self.lacks(&format!("this needs the role `tenant:{tenant}`"))),
            None => {
                let needed =
                    format!("this concerns the whole server and needs the role `{role}` without a `tenant:` role");
                Err(self.lacks(&needed))
            }
        }
    }

    fn lacks(&self, needed: &str) -> MissingRole {
        let (name, names) = (&self.name, self.roles.names());
        MissingRole(format!("{needed}; the roles of token {name:?} are {names} (`roles` of its [[admin.token]])"))
    }
}

/// The first segments below `/v1` of the paths that show or change only what belongs to the tenant of their query.
const BY_QUERY: [&str; 5] = ["extensions", "sessions", "state", "reload", "requests"];

/// The tenant that a request for the API concerns: that of the query, or that of a path below `/v1/tenants`. `None` is
/// the whole server. A query that names several tenants names none.
pub(super) fn tenant_of(uri: &Uri) -> Option<String> {
    let mut segments = uri.path().split('/').skip(1);
    match (segments.next(), segments.next(), segments.next()) {
        (Some("v1"), Some("tenants"), Some(name)) => {
            return percent_decode_str(name).decode_utf8().ok().map(|name| name.into_owned());
        }
        (Some("v1"), Some(segment), _) if BY_QUERY.contains(&segment) => {}
        _ => return None,
    }
    let mut named =
        form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).filter(|(key, _)| key == "tenant");
    match (named.next(), named.next()) {
        (Some((_, tenant)), None) => Some(tenant.into_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Holder, Permission, Roles, tenant_of};
    use crate::config::AdminRole;

    fn holder(roles: &[&str]) -> Holder {
        let roles = roles.iter().map(|role| AdminRole::parse(role).expect("a role")).collect();
        Holder { name: "bot".into(), roles: Arc::new(Roles::of(Some(roles))) }
    }

    #[test]
    fn a_role_opens_only_its_own_requests_and_a_tenant_role_narrows_the_others() {
        let all = Holder { name: "admin".into(), roles: Arc::new(Roles::of(None)) };
        let [reader, both, acme, reader_of_acme] =
            [&["read"][..], &["operate", "install"], &["tenant:acme"], &["read", "tenant:acme"]].map(holder);
        let of = [(&all, [true; 6]), (&reader, [true, true, true, false, false, false])].into_iter().chain([
            (&both, [false, false, false, true, true, true]),
            (&acme, [false, true, false, false, true, false]),
            (&reader_of_acme, [false, true, false, false, false, false]),
        ]);
        for (holder, expected) in of {
            let tries = [Permission::Read, Permission::Install].map(|permission| {
                [None, Some("acme"), Some("other")].map(|tenant| holder.check(permission, tenant).is_ok())
            });
            assert_eq!(tries.concat(), expected, "{holder:?}");
        }
    }

    #[test]
    fn a_refusal_names_the_missing_role_and_the_roles_of_the_token() {
        let error = holder(&["read", "tenant:acme"]).check(Permission::Install, Some("acme")).expect_err("a refusal");
        let text = error.0;
        assert!(text.contains("`install`") && text.contains("\"bot\" are read, tenant:acme"), "{text}");
        let error = holder(&["read", "tenant:acme"]).check(Permission::Read, None).expect_err("a refusal");
        assert!(error.0.contains("whole server"), "{}", error.0);
    }

    #[test]
    fn a_request_concerns_the_tenant_of_its_query_or_of_its_path() {
        let cases = [
            ("/v1/extensions", None),
            ("/v1/extensions?tenant=acme", Some("acme")),
            ("/v1/sessions?limit=1&tenant=ac%6De", Some("acme")),
            ("/v1/sessions?tenant=acme&tenant=other", None),
            ("/v1/tenants", None),
            ("/v1/tenants?tenant=acme", None),
            ("/v1/replicas?tenant=acme", None),
            ("/metrics?tenant=acme", None),
            ("/v1/requests/1?tenant=acme", Some("acme")),
            ("/v1/tenants/acme", Some("acme")),
            ("/v1/tenants/other/usage?tenant=acme", Some("other")),
            ("/v1/tenants/acme%2Fusage", Some("acme/usage")),
        ];
        for (uri, expected) in cases {
            assert_eq!(tenant_of(&uri.parse().expect("a URI")).as_deref(), expected, "{uri}");
        }
    }
}
