import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { defineConfig, type ViteUserConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { filesLeftOut } from './test/extras.ts';

/**
 * Live tests with a process of their own: they count what their process holds (memory, threads, descriptors, garbage), change
 * its environment, or start so much beside it that the modules are the least of their time.
 */
const alone: readonly string[] = [
  'test/{browser,crash,dashboard,fuzz-inputs,handoff,package,server-load,soak}/**/*.test.ts',
  'test/backends/{arena,posix,webgpu}/**/*.test.ts',
  'test/cli/bench/a-bench-of-tiny-sizes-ends-with-all-its-rows.test.ts', // it counts the memory of its process
  'test/cli/{inputs,process}/**/*.test.ts', // a child's peak memory counts from that of its parent
  // these stop the clock of the process
  'test/backends/file/io/{a-block-in-several-ios-ends-once,an-io-that-never-comes-back}.test.ts',
  'test/backends/file/restart/an-index-that-fails-costs-no-record.test.ts',
  'test/embed/device/**/*.test.ts',
  'test/embed/mistakes/what-a-machine-cannot-hold-is-refused.test.ts',
  'test/evolve/{frameworks,serve}/**/*.test.ts',
  'test/workers/{many-machines-give-the-result-of-one,a-server-that-cannot-be-used-is-told,a-job-of-another-hand-is-refused}.test.ts',
];

/**
 * Tests that open a device, start a process or a thread, or read through what can. All others are unit tests, and
 * test/tidy holds that none of them reaches such a module.
 */
export const live: readonly string[] = [
  ...alone,
  'test/{adapters,backends,cli,compute,doctor,embed,examples,explain,export,metrics,report,testing}/**/*.test.ts',
  'test/evolve/search/{numeric,selection}.test.ts',
  'test/goldens/{experiments,tiers,upstream}/**/*.test.ts',
  'test/gateway/{*,live/*,events/live/*}.test.ts',
  'test/goldens/random-step-traces.test.ts',
  'test/runtime/policy/hazard/hazard-closes-the-gap-on-public-traces.test.ts',
  'test/sim/workload/same-bytes.test.ts',
  // these read files through the command line's reader, which opens pipes
  'test/data/**/*.test.ts',
  'test/evolve/fitness/{metrics-are-described,replicas-of-a-run}.test.ts',
  'test/evolve/{trace/regret-and-summaries,binding/three-ways-decide-alike}.test.ts',
  'test/runtime/migration/classifier-agrees-with-hindsight.test.ts',
  'test/sim/cluster/{a-measured-vllm-run,adapters-take-turns,users-give-requests-up,snapshot/keys-left-out-change-nothing}.test.ts',
  'test/sim/latency/*.test.ts',
  'test/sim/report/tiers-of-unlike-instances-add-up.test.ts',
  'test/tools/*.test.ts',
  'test/sim/tier/a-tier-adds-no-gpu-memory.test.ts',
  'test/**/oracle.test.ts',
];

/**
 * Slices of campaigns, and checks that fill memory: `npm run ci` runs them, `npm test` does not. Each names the campaign of
 * `test/campaign.ts` that runs it at full size, which test/tidy holds.
 */
export const slices: readonly string[] = ['test/**/*.slice.test.ts'];

/**
 * Unit tests of more than 2 seconds of processor time. All other unit tests are `quick`; a run of theirs ends with the names
 * of files that belong here (`test/slowestFilesReporter.ts`).
 */
export const long: readonly string[] = [
  'test/evolve/binding/instance-scheduler.test.ts',
  'test/evolve/binding/schedulers-are-forked-and-replayed.test.ts',
  'test/evolve/presets/decide-differently.test.ts',
  'test/evolve/search/programs.test.ts',
  'test/evolve/search/search.test.ts',
  'test/evolve/trace/tiers-and-replicas.test.ts',
  'test/gateway/events/blocks-are-told-behind-their-parents.test.ts',
  'test/runtime/batching/losses-strand-no-request.test.ts',
  'test/runtime/batching/random-batches-are-sound.test.ts',
  'test/runtime/batching/who-gave-way-is-not-overtaken.test.ts',
  'test/runtime/manager/matchLengths.test.ts',
  'test/runtime/manager/residency/quotas.test.ts',
  'test/runtime/manager/tables-grow-as-they-are-used.test.ts',
  'test/runtime/policy/each-policy-evicts-what-its-textbook-says.test.ts',
  'test/runtime/policy/hazard/hazard-follows-lru-until-it-knows-better.test.ts',
  'test/runtime/policy/the-manager-holds-under-every-policy.test.ts',
  'test/runtime/policy/whoever-entered-can-be-evicted-whatever-was-called.test.ts',
  'test/runtime/reuse/no-timing-tells-another-tenants-prefix.test.ts',
  'test/runtime/snapshot/a-restored-manager-goes-on-the-same.test.ts',
  'test/runtime/snapshot/damaged-states-are-refused.test.ts',
  'test/sim/cluster/forced-decisions.test.ts',
  'test/sim/cluster/random-clusters-lose-nothing.test.ts',
  'test/sim/cluster/snapshot/a-fork-is-the-run-it-comes-from.test.ts',
  'test/sim/control/a-thousand-instances.test.ts',
  'test/sim/report/every-report-adds-up.test.ts',
  'test/sim/sandbox/attacks/attacks.test.ts',
  'test/sim/sandbox/attacks/longWork.test.ts',
  'test/sim/sandbox/javascript/policy.test.ts',
  'test/sim/sandbox/starlark/engines.test.ts',
  'test/sim/sandbox/wasm/examples.test.ts',
  'test/sim/workload/a-chat-is-as-recorded.test.ts',
  'test/sim/workload/generation.test.ts',
  'test/sim/workload/trace/importers.test.ts',
  'test/tidy/tidy.test.ts',
];

/** Files of half a minute and more begin first, so that none of them is alone at the end. */
const slow =
  /\/(crash|soak|fuzz-inputs|server-load|modelcheck|evolve\/frameworks|goldens\/upstream|examples\/server|cli\/(evaluate|evolve|inputs))\//;

/** In the order in which they run. */
const projects = ['slice', 'live-alone', 'live', 'unit', 'quick'];

class SlowFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    // a process goes on with the next file where that is of the same project
    const rank = ({ moduleId, project }: TestSpecification): number =>
      projects.indexOf(project.name) * 2 + (slow.test(moduleId) ? 0 : 1);
    return sorted.sort((a, b) => rank(a) - rank(b));
  }
}

// Programs that tests start, and packages that they load, are compiled once and not in each process. Line coverage would
// be told of less.
if (process.env.NODE_V8_COVERAGE === undefined) {
  process.env.NODE_COMPILE_CACHE ??= join(import.meta.dirname, 'node_modules', '.cache', 'compiled');
}

/** These change nothing outside of themselves, so one process runs many files and loads the modules once. */
const ofUnit = {
  isolate: false,
  runner: './test/processorTimeRunner.ts',
  testTimeout: 600_000,
  hookTimeout: 600_000,
};
const ofLive = { globalSetup: ['./test/command.ts'], testTimeout: 300_000, hookTimeout: 300_000 };

const config: ViteUserConfig = defineConfig({
  test: {
    sequence: { sequencer: SlowFirst },
    // What one test replaced is not there for the next one, nor for the next file of its process.
    restoreMocks: true,
    unstubEnvs: true,
    unstubGlobals: true,
    // The default is a second, and a busy machine stands for longer: this is as good as the time limit of a test.
    expect: { poll: { timeout: 240_000 } },
    pool: 'forks', // worker threads hide the environment from the Vulkan loader
    // Node loads the sources itself, as it does for users: they are what runs, and hot loops have no getters before their
    // imports, as vite's module runner puts there. `vi.mock` is not there then.
    experimental: { viteModuleRunner: false, nodeLoader: false },
    maxWorkers: availableParallelism() + 1, // one more than cores: some wait for processes, disks and deadlines
    reporters: ['default', './test/slowestFilesReporter.ts', './test/absentDataReporter.ts'],
    projects: [
      {
        extends: true,
        test: {
          ...ofUnit,
          name: 'quick',
          include: ['test/**/*.test.ts'],
          exclude: [...live, ...slices, ...long, ...filesLeftOut],
        },
      },
      { extends: true, test: { ...ofUnit, name: 'unit', include: [...long], exclude: [...filesLeftOut] } },
      {
        extends: true,
        test: {
          ...ofLive,
          name: 'live',
          include: [...live],
          exclude: [...alone, ...slices, ...filesLeftOut],
          isolate: false,
        },
      },
      {
        extends: true,
        test: { ...ofLive, name: 'live-alone', include: [...alone], exclude: [...slices, ...filesLeftOut] },
      },
      {
        extends: true,
        test: {
          ...ofLive,
          name: 'slice',
          include: [...slices],
          exclude: [...filesLeftOut],
          testTimeout: 600_000,
        },
      },
    ],
  },
});

export default config;
