/**
 * Wear as a controlled quantity: how many bytes may be written to a tier for each byte that is later read
 * from it. A bucket that begins with the tier's capacity, so that an empty tier fills, gains with each byte
 * read and, if wanted, with time, and pays for each byte written. It never holds more than the capacity. What
 * it cannot pay for is not written:
 *
 *     written  <=  capacity + bytesPerByteRead * read + bytesPerSecond * seconds
 *
 * Gain by time keeps a tier alive whose contents nobody reads any more; without it such a tier would stay as
 * it is.
 */

import { requireFinite } from '../../errors.ts';
import { optionNames, requireOptions } from '../../options.ts';
import type { StateVisitor } from '../../snapshot/index.ts';

export interface WriteBudgetConfig {
  /** Bytes that may be written for each byte read back. */
  readonly bytesPerByteRead: number;
  /** Bytes that may be written in each second besides, such as a disk's rated endurance gives. Default 0. */
  readonly bytesPerSecond?: number;
}

export const writeBudgetConfigNames: readonly string[] = optionNames<WriteBudgetConfig>({
  bytesPerByteRead: true,
  bytesPerSecond: true,
});

export class WriteBudget {
  readonly #bytesPerByteRead: number;
  readonly #bytesPerUs: number;
  readonly #capacityBytes: number;
  #leftBytes: number;
  #lastUs = 0;

  constructor({ bytesPerByteRead, bytesPerSecond = 0 }: WriteBudgetConfig, capacityBytes: number) {
    this.#bytesPerByteRead = bytesPerByteRead;
    this.#bytesPerUs = bytesPerSecond / 1e6;
    this.#capacityBytes = capacityBytes;
    this.#leftBytes = capacityBytes;
  }

  canPay(bytes: number, nowUs: number): boolean {
    this.#gain((nowUs - this.#lastUs) * this.#bytesPerUs);
    this.#lastUs = nowUs;
    return this.#leftBytes >= bytes;
  }

  pay(bytes: number): void {
    this.#leftBytes -= bytes;
  }

  wasRead(bytes: number): void {
    this.#gain(bytes * this.#bytesPerByteRead);
  }

  #gain(bytes: number): void {
    this.#leftBytes = Math.min(this.#capacityBytes, this.#leftBytes + bytes);
  }

  visitState(visitor: StateVisitor): void {
    this.#leftBytes = visitor.number(this.#leftBytes);
    this.#lastUs = visitor.number(this.#lastUs);
  }
}

/** @throws TKV_CONFIG naming the field under `tier` */
export function checkedBudget(
  tier: string,
  budget: WriteBudgetConfig | undefined,
): WriteBudgetConfig | undefined {
  if (budget === undefined) return undefined;
  requireOptions(budget, writeBudgetConfigNames, `${tier}.writeBudget`, 'TKV_CONFIG');
  requireFinite(`${tier}.writeBudget.bytesPerByteRead`, budget.bytesPerByteRead);
  requireFinite(`${tier}.writeBudget.bytesPerSecond`, budget.bytesPerSecond ?? 0);
  return budget;
}
