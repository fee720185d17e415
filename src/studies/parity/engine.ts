/**
 * An engine that a parity run serves the traffic on, in place of the stand-in: a module
 * that exports it as its default. It computes, so the times of its steps are its own, and
 * the prediction takes them from the latency model that its runner fits to them.
 */

import path from 'node:path';
import { pathToFileURL } from 'node:url';
import type { TierOptions } from '../../backends/tierRows.ts';
import type { KVSchedulerConfig } from '../../embed/scheduler.ts';
import { configError } from '../../runtime/errors.ts';
import type { KVLayout } from '../../runtime/index.ts';
import type { ParityRunner } from './traffic.ts';

/** Settings with which a runner opens its runtime. */
export interface EngineSetting {
  /** Bytes of each tier, by its name; 0 for one that is off. */
  readonly tierBytes: Readonly<Record<string, number>>;
  /** The same as a runtime is opened with it. */
  readonly tierOptions: TierOptions;
  readonly eviction: string;
  readonly scheduler: KVSchedulerConfig;
  readonly adapter: string | undefined;
  /** Where the disk tier lies. */
  readonly dir: string;
}

export interface ParityEngine {
  readonly name: string;
  /** The layout of the engine's model; tiers hold whole blocks. */
  readonly layout: KVLayout;
  runner(setting: EngineSetting): ParityRunner;
}

/** @throws TKV_CONFIG for a module that cannot be loaded or exports no engine */
export async function loadEngine(file: string): Promise<ParityEngine> {
  let loaded: { readonly default?: Partial<ParityEngine> };
  try {
    loaded = await import(pathToFileURL(path.resolve(file)).href);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw configError('engine', `is ${file}, which cannot be loaded (${why})`, 'Name a module.');
  }
  const engine = loaded.default;
  const isEngine = typeof engine?.runner === 'function' && engine.layout !== undefined;
  if (isEngine && typeof engine.name === 'string') return engine as ParityEngine;
  const remedy = 'Export { name, layout, runner } as its default.';
  throw configError('engine', `is ${file}, which exports no engine`, remedy);
}
