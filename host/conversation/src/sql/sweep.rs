//! Deletes old conversations, tasks and claims. Other writers can write between the small transactions.

use annex_database::{Database, Row, Value};
use annex_protocol::{TaskId, Timestamp};

use super::leased::Leased;
use super::values::{members, replica_of};
use super::{delete, statements, upkeep_statements};
use crate::error::StoreError;
use crate::key::{ConversationKey, check_key};
use crate::retention::{Keep, Retention, Swept};

/// The maximum number of records in one query.
const BATCH: usize = 100;

pub(super) async fn sweep<D: Leased>(database: &D, retention: &Retention) -> Result<Swept, StoreError> {
    let now = Timestamp::now().as_millis();
    let mut swept = Swept {
        tasks: tasks(database, &retention.tasks, now).await?,
        conversations: conversations(database, &retention.conversations, now).await?,
        ..Swept::default()
    };
    forget_left_queues(database, now.saturating_sub(60 * 60 * 1_000)).await?;
    let answers = [Value::count(retention.tasks.count), Value::Int(retention.tasks.before(now))];
    change(database, upkeep_statements::FORGET_OLD_ANSWERS, &answers).await?;
    change(database, upkeep_statements::FORGET_OLD_CLAIMS, &[Value::Int(retention.claimed_before(now))]).await?;
    let bounds = &retention.waiting;
    let values = [
        Value::count(bounds.anonymous),
        Value::count(bounds.per_owner),
        Value::Int(bounds.waited_before(now)),
        Value::count(BATCH),
    ];
    let rows = database.read(upkeep_statements::SELECT_OVERDUE, &values).await?;
    swept.overdue = rows.iter().map(|row| Ok(row.text(0)?.into())).collect::<Result<_, sqlx::Error>>()?;
    Ok(swept)
}

/// Empties the queues that ended processes have left behind, if their conversations have no event, no task and no
/// change since `before`. Then deletes the rows of conversations that have neither a history nor tasks nor turns.
async fn forget_left_queues<D: Leased>(database: &D, before: i64) -> Result<(), StoreError> {
    let values = [Value::Int(before), Value::count(BATCH)];
    for row in database.read(upkeep_statements::IDLE_QUEUES, &values).await? {
        let turns = row.text(1)?;
        let mut is_left = true;
        for turn in members(&turns) {
            let replica = [Value::Text(replica_of(turn))];
            is_left &= database.read(D::STATEMENTS.is_alive, &replica).await?.is_empty();
        }
        if is_left {
            let values = [Value::Int(row.int(0)?), Value::Text(&turns)];
            change(database, upkeep_statements::FORGET_QUEUE, &values).await?;
        }
    }
    change(database, upkeep_statements::DELETE_EMPTY, &[Value::Int(before)]).await
}

async fn conversations<D: Leased>(database: &D, keep: &Keep, now: i64) -> Result<u64, StoreError> {
    let old = [Value::Int(keep.before(now)), Value::count(BATCH)];
    let mut deleted = delete_conversations(database, upkeep_statements::OLD_CONVERSATIONS, &old).await?;
    for tenant in tenants(database, upkeep_statements::TENANTS_WITH_SURPLUS_CONVERSATIONS, keep.count).await? {
        let surplus = [Value::Text(&tenant), Value::count(keep.count), Value::count(BATCH)];
        deleted += delete_conversations(database, upkeep_statements::SURPLUS_CONVERSATIONS, &surplus).await?;
    }
    Ok(deleted)
}

async fn tasks<D: Database>(database: &D, keep: &Keep, now: i64) -> Result<u64, StoreError> {
    let old = [Value::Int(keep.before(now)), Value::count(BATCH)];
    let mut deleted = delete_tasks(database, upkeep_statements::OLD_TASKS, &old).await?;
    for tenant in tenants(database, upkeep_statements::TENANTS_WITH_SURPLUS_TASKS, keep.count).await? {
        deleted += surplus_tasks(database, &tenant, keep.count).await?;
    }
    Ok(deleted)
}

pub(super) async fn sweep_tenant<D: Database>(database: &D, tenant: &str, count: u64) -> Result<u64, StoreError> {
    if check_key("tenant", tenant).is_err() {
        return Ok(0);
    }
    surplus_tasks(database, tenant, count).await
}

async fn surplus_tasks<D: Database>(database: &D, tenant: &str, count: u64) -> Result<u64, StoreError> {
    let values = [Value::Text(tenant), Value::count(count), Value::count(BATCH)];
    delete_tasks(database, upkeep_statements::SURPLUS_TASKS, &values).await
}

/// The tenants that have more than `count` records, by the statement `find`.
async fn tenants<D: Database>(database: &D, find: &'static str, count: u64) -> Result<Vec<String>, StoreError> {
    let rows = database.read(find, &[Value::count(count)]).await?;
    Ok(rows.iter().map(|row| row.text(0)).collect::<Result<_, sqlx::Error>>()?)
}

/// Deletes the conversations that the statement `find` selects. Repeats this until no more can be deleted.
async fn delete_conversations<D: Leased>(
    database: &D,
    find: &'static str,
    values: &[Value<'_>],
) -> Result<u64, StoreError> {
    let mut deleted = 0;
    loop {
        let before = deleted;
        let rows = database.read(find, values).await?;
        for row in &rows {
            let key = ConversationKey::new(row.text(0)?, row.text(1)?, row.text(2)?, row.text(3)?);
            deleted += u64::from(delete::old_conversation(database, &key, row.int(4)?).await?);
        }
        if deleted == before {
            return Ok(deleted);
        }
    }
}

/// Deletes the tasks that the statement `find` selects. Repeats this until the statement selects no more tasks.
async fn delete_tasks<D: Database>(database: &D, find: &'static str, values: &[Value<'_>]) -> Result<u64, StoreError> {
    let mut deleted = 0;
    loop {
        let mut transaction = database.begin().await?;
        if let Some(lock) = D::LOCK_SWEEP {
            // Two sweepers at once would each delete what is too much.
            D::query(&mut transaction, lock, &[]).await?;
        }
        let rows = D::query(&mut transaction, find, values).await?;
        for row in &rows {
            let id = TaskId::from(row.text(0)?);
            let id = [Value::Text(id.as_str())];
            D::execute(&mut transaction, upkeep_statements::DELETE_ENTRIES_OF_TASK, &id).await?;
            D::execute(&mut transaction, statements::FORGET_CLAIMS_OF_TASK, &id).await?;
            deleted += D::execute(&mut transaction, statements::DELETE_TASK, &id).await?;
        }
        D::commit(transaction).await?;
        if rows.len() < BATCH {
            return Ok(deleted);
        }
    }
}

async fn change<D: Database>(database: &D, sql: &'static str, values: &[Value<'_>]) -> Result<(), StoreError> {
    let mut transaction = database.begin().await?;
    D::execute(&mut transaction, sql, values).await?;
    Ok(D::commit(transaction).await?)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::upkeep_statements as upkeep;
    use crate::SqliteStore;
    use crate::limits::Limits;

    /// The plan of SQLite for a statement, a line for each step.
    fn plan(file: &Path, sql: &str) -> String {
        let connection = rusqlite::Connection::open(file).unwrap();
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let mut rows = statement.raw_query();
        let mut steps = String::new();
        while let Some(row) = rows.next().unwrap() {
            steps.push_str(&row.get::<_, String>("detail").unwrap());
            steps.push('\n');
        }
        steps
    }

    #[tokio::test]
    async fn a_sweep_finds_what_it_deletes_by_an_index() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("c");
        let _store = SqliteStore::open(&file, None, Limits::default()).await.unwrap();
        let searches = [
            (upkeep::OLD_CONVERSATIONS, "SEARCH conversation USING INDEX conversation_kept (changed_at<?)"),
            (upkeep::SURPLUS_CONVERSATIONS, "USING COVERING INDEX conversation_of_tenant (tenant=?)"),
            (upkeep::IDLE_QUEUES, "SEARCH conversation USING INDEX conversation_empty (changed_at<?)"),
            (upkeep::DELETE_EMPTY, "SEARCH conversation USING INDEX conversation_empty (changed_at<?)"),
            (upkeep::OLD_TASKS, "USING COVERING INDEX task_ended"),
            (upkeep::SURPLUS_TASKS, "USING COVERING INDEX task_finished (tenant=?"),
        ];
        for (sql, expected) in searches {
            let plan = plan(&file, sql);
            assert!(plan.contains(expected) && !plan.contains("SCAN"), "{sql}\n{plan}");
        }
        for (sql, index) in [
            (upkeep::TENANTS_WITH_SURPLUS_CONVERSATIONS, "conversation_of_tenant"),
            (upkeep::TENANTS_WITH_SURPLUS_TASKS, "task_finished"),
        ] {
            let plan = plan(&file, sql);
            assert!(plan.contains(&format!("USING COVERING INDEX {index}")), "{sql}\n{plan}");
        }
    }
}
