import { defineConfig, type ViteUserConfig } from 'vitest/config';

/** Tests that open a device, start a process or write real files. All others are unit tests. */
const live = [
  'test/{backends,cli,compute,crash,embed,examples,fuzz-inputs,package,server-load,soak,testing}/**/*.test.ts',
  'test/evolve/{frameworks,serve}/**/*.test.ts',
  'test/goldens/{experiments,upstream}/**/*.test.ts',
  'test/faults/realStores.test.ts',
  'test/**/oracle.test.ts',
];

const config: ViteUserConfig = defineConfig({
  test: {
    pool: 'forks', // worker threads hide the environment from the Vulkan loader
    maxWorkers: '100%',
    reporters: ['default', './test/absentDataReporter.ts'],
    projects: [
      {
        extends: true,
        test: { name: 'unit', include: ['test/**/*.test.ts'], exclude: live, testTimeout: 120_000 },
      },
      {
        extends: true,
        test: { name: 'live', include: live, testTimeout: 300_000, hookTimeout: 120_000 },
      },
    ],
  },
});

export default config;
