//! The changes that the admin API and the console make, and the permission that each one needs.

use axum::http::Method;

use super::caller::is_change;
use super::roles::Permission;

/// A change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    InstallExtension,
    RemoveExtension,
    RollBackExtension,
    BeginShadow,
    PromoteShadow,
    EndShadow,
    RecordTurns,
    Reload,
    UploadComponent,
    RemoveComponent,
    PutTenant,
    RemoveTenant,
    DeleteSession,
    DeleteState,
    CancelTask,
    /// A change that has no name here.
    Other,
}

impl Action {
    /// The change that a request asks for. `None` for a read.
    pub(super) fn of(method: &Method, path: &str) -> Option<Self> {
        if !is_change(method) {
            return None;
        }
        let mut segments = path.split('/').skip(1);
        let segments = [segments.next(), segments.next(), segments.next(), segments.next(), segments.next()];
        Some(match (method.as_str(), segments) {
            ("POST", [Some("v1"), Some("extensions"), None, ..]) => Self::InstallExtension,
            ("DELETE", [Some("v1"), Some("extensions"), Some(_), None, _]) => Self::RemoveExtension,
            ("POST", [Some("v1"), Some("extensions"), Some(_), Some("rollback"), None]) => Self::RollBackExtension,
            ("POST", [Some("v1"), Some("extensions"), Some(_), Some("record"), None]) => Self::RecordTurns,
            ("POST", [Some("v1"), Some("extensions"), Some(_), Some("shadow"), None]) => Self::BeginShadow,
            ("POST", [Some("v1"), Some("extensions"), Some(_), Some("shadow"), Some(_)]) => Self::PromoteShadow,
            ("DELETE", [Some("v1"), Some("extensions"), Some(_), Some("shadow"), None]) => Self::EndShadow,
            ("POST", [Some("v1"), Some("reload"), None, ..]) => Self::Reload,
            ("POST", [Some("v1"), Some("components"), None, ..]) => Self::UploadComponent,
            ("DELETE", [Some("v1"), Some("components"), Some(_), None, _]) => Self::RemoveComponent,
            ("PUT", [Some("v1"), Some("tenants"), Some(_), None, _]) => Self::PutTenant,
            ("DELETE", [Some("v1"), Some("tenants"), Some(_), None, _]) => Self::RemoveTenant,
            ("DELETE", [Some("v1"), Some("sessions"), Some(_), None, _]) => Self::DeleteSession,
            ("DELETE" | "POST", [Some("v1"), Some("state"), ..]) => Self::DeleteState,
            _ => Self::Other,
        })
    }

    /// The name in the audit file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::InstallExtension => "install_extension",
            Self::RemoveExtension => "remove_extension",
            Self::RollBackExtension => "roll_back_extension",
            Self::BeginShadow => "begin_shadow",
            Self::PromoteShadow => "promote_shadow",
            Self::EndShadow => "end_shadow",
            Self::RecordTurns => "record_turns",
            Self::Reload => "reload",
            Self::UploadComponent => "upload_component",
            Self::RemoveComponent => "remove_component",
            Self::PutTenant => "put_tenant",
            Self::RemoveTenant => "remove_tenant",
            Self::DeleteSession => "delete_session",
            Self::DeleteState => "delete_state",
            Self::CancelTask => "cancel_task",
            Self::Other => "other",
        }
    }

    pub(crate) fn permission(self) -> Permission {
        match self {
            Self::RollBackExtension
            | Self::EndShadow
            | Self::RecordTurns
            | Self::Reload
            | Self::DeleteSession
            | Self::DeleteState
            | Self::CancelTask
            | Self::Other => Permission::Operate,
            Self::InstallExtension
            | Self::RemoveExtension
            | Self::BeginShadow
            | Self::PromoteShadow
            | Self::UploadComponent
            | Self::RemoveComponent
            | Self::PutTenant
            | Self::RemoveTenant => Permission::Install,
        }
    }

    /// True if the change belongs to the server even if it names a tenant: a tenant's text has the quota of the tenant.
    pub(crate) fn is_of_server(self) -> bool {
        matches!(self, Self::UploadComponent | Self::RemoveComponent | Self::PutTenant | Self::RemoveTenant)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Method;

    use super::{Action, Permission};

    #[test]
    fn each_route_that_changes_something_has_its_action_and_permission() {
        let cases = [
            (Method::GET, "/v1/extensions", None, Permission::Read),
            (Method::HEAD, "/metrics", None, Permission::Read),
            (Method::POST, "/v1/extensions", Some(Action::InstallExtension), Permission::Install),
            (Method::DELETE, "/v1/extensions/urn%3Aa", Some(Action::RemoveExtension), Permission::Install),
            (Method::POST, "/v1/extensions/a/rollback", Some(Action::RollBackExtension), Permission::Operate),
            (Method::POST, "/v1/extensions/a/record", Some(Action::RecordTurns), Permission::Operate),
            (Method::POST, "/v1/extensions/a/shadow", Some(Action::BeginShadow), Permission::Install),
            (Method::POST, "/v1/extensions/a/shadow/promote", Some(Action::PromoteShadow), Permission::Install),
            (Method::DELETE, "/v1/extensions/a/shadow", Some(Action::EndShadow), Permission::Operate),
            (Method::POST, "/v1/reload", Some(Action::Reload), Permission::Operate),
            (Method::POST, "/v1/components", Some(Action::UploadComponent), Permission::Install),
            (Method::DELETE, "/v1/components/sha256:00", Some(Action::RemoveComponent), Permission::Install),
            (Method::PUT, "/v1/tenants/acme", Some(Action::PutTenant), Permission::Install),
            (Method::DELETE, "/v1/tenants/acme", Some(Action::RemoveTenant), Permission::Install),
            (Method::DELETE, "/v1/sessions/c", Some(Action::DeleteSession), Permission::Operate),
            (Method::DELETE, "/v1/state", Some(Action::DeleteState), Permission::Operate),
            (Method::POST, "/v1/state/delete", Some(Action::DeleteState), Permission::Operate),
            (Method::POST, "/v1/nothing", Some(Action::Other), Permission::Operate),
        ];
        for (method, path, action, permission) in cases {
            let found = Action::of(&method, path);
            assert_eq!(found, action, "{method} {path}");
            assert_eq!(found.map_or(Permission::Read, Action::permission), permission, "{method} {path}");
        }
    }
}
