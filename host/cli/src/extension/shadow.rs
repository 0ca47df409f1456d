//! Text output about shadows.

use annex_server::admin_api::shadows::{self, Cost, Differ, Difference, Example};

use super::shown;
use crate::line::Line;

pub(super) type Shadow = shadows::Shadow<Line>;

/// Writes the message that a shadow has begun.
pub(super) fn began(shadow: &Shadow) -> String {
    let Shadow { digest, share, .. } = shadow;
    format!(
        "{digest} follows {share} of 100 turns, without an effect on anything.\nNext: annex extension show, then promote \
         or drop\n"
    )
}

/// Writes the message that a shadow was dropped, with its final report.
pub(super) fn dropped(shadow: &Shadow) -> String {
    format!("Dropped:\n{}", report(shadow))
}

/// Writes the results of a shadow so far.
pub(super) fn report(shadow: &Shadow) -> String {
    let Shadow { digest, component_version, since, share, turns, agreed, failed, .. } = shadow;
    let mut text = format!(
        "Shadow      {component_version}, {digest}, since {since}, {share} of 100 turns\n            {agreed} of {turns} \
         turns agreed; it failed in {failed}\n"
    );
    let counts = [
        (shadow.unanswered, "turns in which it asked what the version in force did not ask"),
        (shadow.not_run, "turns that it was not played: quarantined, or no instance for it"),
        (shadow.left_out, "turns left out: too large, or too many at once"),
    ];
    for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!("            {count} {what}\n"));
    }
    for Differ { what, turns } in &shadow.differ {
        text.push_str(&format!("            {what} differs in {turns}\n"));
    }
    for cost in &shadow.costs {
        text.push_str(&format!("Costs       {}\n", costs(cost)));
    }
    text.push_str(&format!("            memory {} KiB\n", shadow.memory_peak.div_ceil(1024)));
    if let Some(failure) = &shadow.last_failure {
        text.push_str(&format!("          {}", shown::failed_call(failure)));
    }
    text.push_str(&shown::quarantine(&shadow.quarantine));
    shadow.examples.iter().for_each(|differs| text.push_str(&example(differs)));
    text
}

fn costs(Cost { hook, calls_in_force, mean_us_in_force, calls, mean_us }: &Cost<Line>) -> String {
    let mean = |mean: &Option<f64>| mean.map_or("-".to_owned(), |mean| format!("{mean:.0} µs"));
    format!("{hook}: {} in {calls_in_force} calls -> {} in {calls}", mean(mean_us_in_force), mean(mean_us))
}

fn example(Example { at, context_id, differences, unanswered }: &Example<Line>) -> String {
    let context = context_id.as_ref().map(|context| format!(", conversation {context}")).unwrap_or_default();
    let mut text = format!("Differs     {at}{context}\n");
    for Difference { what, place, was, is } in differences {
        let place = place.as_ref().map(|place| format!(" ({place})")).unwrap_or_default();
        text.push_str(&format!("            {what}{place}\n            - {was}\n            + {is}\n"));
    }
    for question in unanswered {
        text.push_str(&format!("            it asked for {question}\n"));
    }
    text
}
