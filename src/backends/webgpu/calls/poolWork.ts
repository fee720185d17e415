/**
 * The lines of work of a pool, and the kinds of batches that they carry. Everything that a pool needs on the
 * device beside its slabs is made here, once: mapped buffers, kernels and their tables.
 */

import { type BoxKernels, openBoxKernels } from '../boxes/boxKernels.ts';
import { type BoxPathRule, choosePath, hardwareRule, softwareRule } from '../boxes/boxPath.ts';
import type { BoxPlan } from '../boxes/boxPlan.ts';
import { BoxTables, packedBuffer } from '../boxes/boxTables.ts';
import type { LiveDevice } from '../device/liveDevice.ts';
import { KernelRuns } from '../kernels/kernelBatch.ts';
import { SlotKernels } from '../kernels/slotKernels.ts';
import type { Slabs } from '../pool/slabs.ts';
import { SlotCommands } from '../pool/slotCommands.ts';
import { WorkLine } from '../pool/workLine.ts';
import { ReadbackBuffers, type StagingSize, UploadBuffers } from '../staging/mappedBuffers.ts';
import { Readbacks } from '../staging/readbacks.ts';
import { StagingLayout } from '../staging/stagingLayout.ts';
import { Uploads } from '../staging/uploads.ts';
import type { BoxPath, Verification } from '../types.ts';

export interface PoolWorkOptions {
  readonly staging: StagingSize;
  readonly verification: Verification | 'none';
  readonly sealing: Verification;
  readonly boxPath: BoxPath | undefined;
}

/** Batches of kernel results in flight at most. */
const RESULT_BUFFERS = 16;

export class PoolWork {
  readonly staging: StagingSize;
  readonly verification: Verification | 'none';
  readonly sealing: Verification;
  readonly upLine: WorkLine;
  readonly downLine: WorkLine;
  readonly deviceLine: WorkLine;
  readonly uploads: Uploads;
  readonly readbacks: Readbacks;
  /** Readbacks of slots that the host digests, on the device's line. */
  readonly digestReadbacks: Readbacks;
  readonly digests: KernelRuns;
  readonly fills: KernelRuns;
  readonly checks: KernelRuns;
  readonly commands: SlotCommands;
  readonly #boxPath: BoxPath | undefined;
  readonly #boxRule: BoxPathRule;
  readonly #destroy: () => Promise<void>;

  private constructor(
    live: LiveDevice,
    slabs: Slabs,
    label: string,
    options: PoolWorkOptions,
    slotKernels: SlotKernels,
    boxKernels: BoxKernels,
  ) {
    const { staging, verification, sealing } = options;
    this.staging = staging;
    this.verification = verification;
    this.sealing = sealing;
    this.#boxPath = options.boxPath;
    this.#boxRule = live.adapter.software ? softwareRule : hardwareRule;
    this.upLine = new WorkLine(live, label);
    this.downLine = new WorkLine(live, label);
    this.deviceLine = new WorkLine(live, label);

    const resultBytes = slotKernels.resultBytesMax;
    const results = new ReadbackBuffers(
      live,
      { bytes: resultBytes, count: RESULT_BUFFERS },
      `${label}.results`,
    );
    this.digests = new KernelRuns(live, slotKernels, 'digest', results);
    this.fills = new KernelRuns(live, slotKernels, 'fill', results);
    this.checks = new KernelRuns(live, slotKernels, 'check', results);
    this.commands = new SlotCommands(live, label, staging.bytes);

    const packed = packedBuffer(live, label, staging.bytes);
    const gather = new BoxTables(boxKernels.gather, packed);
    const scatter = new BoxTables(boxKernels.scatter, packed);
    const up = new UploadBuffers(live, staging, label);
    const down = new ReadbackBuffers(live, staging, label);
    this.uploads = new Uploads(live, up, new StagingLayout(slabs.buffers, staging.bytes, scatter));
    this.readbacks = new Readbacks(live, down, new StagingLayout(slabs.buffers, staging.bytes, gather));
    this.digestReadbacks = new Readbacks(live, down, new StagingLayout(slabs.buffers, staging.bytes));
    this.#destroy = async () => {
      await Promise.all([up, down, results].map((buffers) => buffers.destroy()));
      for (const kernels of [this.digests, this.fills, this.checks]) kernels.table.destroy();
      for (const tables of [gather, scatter]) tables.destroy();
      packed.destroy();
      this.commands.destroy();
    };
  }

  /** @throws TKV_DEVICE when the device does not compile the kernels */
  static async open(
    live: LiveDevice,
    slabs: Slabs,
    label: string,
    options: PoolWorkOptions,
  ): Promise<PoolWork> {
    const [slotKernels, boxKernels] = await Promise.all([
      SlotKernels.open(live, slabs.buffers, label),
      openBoxKernels(live, slabs.buffers, label),
    ]);
    return new PoolWork(live, slabs, label, options, slotKernels, boxKernels);
  }

  /** How the boxes of a call of `items` items move. */
  boxPath(plan: BoxPlan, items: number): BoxPath {
    return this.#boxPath ?? choosePath(this.#boxRule, plan, items);
  }

  /** When no call is under way. */
  destroy(): Promise<void> {
    return this.#destroy();
  }
}
