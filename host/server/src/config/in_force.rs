//! Makes the config that the process uses after a reload.

use super::{Config, ServerConfig, TasksConfig};

impl Config {
    /// A copy of this config in which the values that a reload applies are those of `read`. Values that need a restart
    /// stay as in this config.
    pub(crate) fn with_live(&self, read: &Self) -> Self {
        let mut live = self.clone();
        live.server = ServerConfig {
            listen: self.server.listen,
            public_url: self.server.public_url.clone(),
            a2a_0_3: self.server.a2a_0_3,
            tls: self.server.tls.clone(),
            ..read.server.clone()
        };
        live.tasks = TasksConfig {
            data_dir: self.tasks.data_dir.clone(),
            postgres_env: self.tasks.postgres_env.clone(),
            max_tasks: self.tasks.max_tasks,
            max_bytes: self.tasks.max_bytes,
            list_all_anonymous: self.tasks.list_all_anonymous,
            ..read.tasks.clone()
        };
        (live.sessions.keep_days, live.sessions.keep_count) = (read.sessions.keep_days, read.sessions.keep_count);
        live.log = read.log;
        live.runtime.ceiling = read.runtime.ceiling.clone();
        if self.auth.is_some() && read.auth.is_some() {
            live.auth.clone_from(&read.auth);
        }
        if self.push.is_some() && read.push.is_some() {
            live.push.clone_from(&read.push);
        }
        if self.stored_tenants.is_some() && read.stored_tenants.is_some() {
            live.stored_tenants.clone_from(&read.stored_tenants);
        }
        if let (Some(running), Some(admin)) = (&self.admin, &read.admin) {
            let mut admin = admin.clone();
            (admin.listen, admin.allow_remote) = (running.listen, running.allow_remote);
            admin.metrics_listen = running.metrics_listen;
            admin.tls.clone_from(&running.tls);
            admin.audit_file.clone_from(&running.audit_file);
            live.admin = Some(admin);
        }
        live.trust.clone_from(&read.trust);
        if let Some(trust) = &mut live.trust {
            trust.deny_file = self.trust.as_ref().and_then(|trust| trust.deny_file.clone());
        }
        live.registries.clone_from(&read.registries);
        live.extensions.clone_from(&read.extensions);
        live.tenants.clone_from(&read.tenants);
        live.file.clone_from(&read.file);
        live
    }
}
