/** Tests as Node runs them, without a bundler between: V8's offsets are then those of the sources. */

import { defineConfig, type ViteUserConfig } from 'vitest/config';

const config: ViteUserConfig = defineConfig({
  test: {
    root: new URL('../..', import.meta.url).pathname,
    pool: 'forks',
    include: ['test/**/*.test.ts'],
    setupFiles: ['./test/lineCoverage/takeCoverage.ts'],
    experimental: { viteModuleRunner: false },
    expect: { poll: { timeout: 240_000 } },
    testTimeout: 300_000,
    hookTimeout: 120_000,
  },
});

export default config;
