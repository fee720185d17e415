import { defineConfig, type ViteUserConfig } from 'vitest/config';

const config: ViteUserConfig = defineConfig({
  test: {
    pool: 'forks', // worker threads hide the environment from the Vulkan loader
    maxWorkers: '100%',
    include: ['test/**/*.test.ts'],
    reporters: ['default', './test/absentDataReporter.ts'],
    testTimeout: 300_000,
    hookTimeout: 120_000,
  },
});

export default config;
