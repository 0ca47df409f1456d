//! The cost of a case per turn.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use annex_runtime::{Digest, Extension, Hook, HookMetrics, Limits, RuntimeConfig};
use toml::Table;

use super::file::{CaseError, CaseFile};
use super::run::play;
use super::runner::{ReadSettings, Runner, config};
use super::scene::Scene;

/// The number of turns that run before the first measured turn, to fill the caches.
const WARM_UP: usize = 20;

/// The settings of a measurement.
pub struct Measurement<'a> {
    /// The number of measured turns.
    pub turns: usize,
    /// True if instructions are counted too. For this, each component is compiled once more.
    pub instructions: bool,
    /// The keys of an `[[extension]]` without `component`.
    pub settings: &'a Table,
    /// The function that parses the settings.
    pub read: ReadSettings<'a>,
    /// The folder for compiled components.
    pub cache: Option<PathBuf>,
}

impl Measurement<'_> {
    async fn load(
        &self,
        config: &RuntimeConfig,
        component: &[u8],
        case: &CaseFile,
    ) -> Result<Arc<Extension>, CaseError> {
        let runner = Runner::with(config, component, self.settings, self.read).map_err(CaseError::Runtime)?;
        Ok(Arc::new(runner.load(&case.given).await?))
    }
}

/// The cost of a case for one component.
#[derive(Debug)]
pub struct Cost {
    /// The digest of the component.
    pub digest: Digest,
    /// The limits that applied to each turn.
    pub limits: Limits,
    /// The duration of each turn, in ascending order, including the host's work around the hooks.
    pub turns: Vec<Duration>,
    /// For each hook, the times that the turns spent in the hook, in ascending order.
    pub hooks: Vec<(Hook, Vec<Duration>)>,
    /// The largest linear memory of an instance, in bytes.
    pub memory: usize,
    /// The number of calls of imports per turn.
    pub host_calls: u64,
    /// The instructions of the guest per turn, which are the same in each run. `None` if the measurement does not count
    /// instructions.
    pub instructions: Option<u64>,
}

impl Cost {
    /// Measures a case on several components. The turns of the components alternate, so that a disturbance of the
    /// machine affects all components alike.
    ///
    /// # Errors
    /// When the case cannot be run, or a turn fails.
    pub async fn of(components: &[&[u8]], case: &Path, measurement: &Measurement<'_>) -> Result<Vec<Self>, CaseError> {
        let turns = measurement.turns;
        let case = CaseFile::read(case)?;
        let config = config(measurement.cache.clone());
        let mut measured = Vec::new();
        for component in components {
            let extension = measurement.load(&config, component, &case).await?;
            measured.push(MeasuredComponent { extension, turns: Vec::new(), hooks: Vec::new() });
        }
        for turn in 0..turns + WARM_UP {
            for measured in &mut measured {
                measured.turn(&case, turn >= WARM_UP).await?;
            }
        }
        let mut costs = Vec::new();
        for (measured, component) in measured.into_iter().zip(components) {
            let mut counted = None;
            if measurement.instructions {
                let counting = RuntimeConfig { count_instructions: true, ..config.clone() };
                let extension = measurement.load(&counting, component, &case).await?;
                counted = Some(count(&extension, &case).await?);
            }
            costs.push(measured.cost(counted, turns));
        }
        Ok(costs)
    }
}

/// A component that is being measured, with its results so far.
struct MeasuredComponent {
    extension: Arc<Extension>,
    turns: Vec<Duration>,
    hooks: Vec<(Hook, Vec<Duration>)>,
}

impl MeasuredComponent {
    async fn turn(&mut self, case: &CaseFile, counts: bool) -> Result<(), CaseError> {
        let scene = Arc::new(Scene::of(&case.given, self.extension.uri()).await?);
        let before = self.extension.metrics().hooks;
        let began = Instant::now();
        let outcome = play(&case.given, &self.extension, &scene).await?;
        let took = began.elapsed();
        outcome.check()?;
        if !counts {
            return Ok(());
        }
        self.turns.push(took);
        for (before, after) in before.iter().zip(&self.extension.metrics().hooks) {
            self.add(before, after);
        }
        Ok(())
    }

    /// Adds the time of one turn within a hook: the difference between two readings of the hook's metrics.
    fn add(&mut self, before: &HookMetrics, after: &HookMetrics) {
        if before.calls == after.calls {
            return;
        }
        let took = after.time.saturating_sub(before.time);
        match self.hooks.iter_mut().find(|(hook, _)| *hook == after.hook) {
            Some((_, times)) => times.push(took),
            None => self.hooks.push((after.hook, vec![took])),
        }
    }

    fn cost(mut self, instructions: Option<u64>, turns: usize) -> Cost {
        self.turns.sort_unstable();
        self.hooks.iter_mut().for_each(|(_, times)| times.sort_unstable());
        let metrics = self.extension.metrics();
        let all = u64::try_from(turns + WARM_UP).unwrap_or(u64::MAX).max(1);
        Cost {
            digest: self.extension.digest(),
            limits: *self.extension.limits(),
            turns: self.turns,
            hooks: self.hooks,
            memory: metrics.memory_peak,
            host_calls: metrics.host_calls / all,
            instructions,
        }
    }
}

/// Counts the instructions of one turn.
async fn count(extension: &Arc<Extension>, case: &CaseFile) -> Result<u64, CaseError> {
    let scene = Arc::new(Scene::of(&case.given, extension.uri()).await?);
    let before = extension.metrics().instructions;
    play(&case.given, extension, &scene).await?.check()?;
    Ok(extension.metrics().instructions.saturating_sub(before))
}
