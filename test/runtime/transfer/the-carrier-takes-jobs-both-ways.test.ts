import { expect, it } from 'vitest';
import {
  type Completion,
  type EndListener,
  type IssuedJobs,
  JobCarrier,
  KVManager,
  Outcome,
  type Transfer,
  type TransferDriver,
} from '../../../src/runtime/index.ts';

/** Ends what it was given when it is told to, the job submitted last first. */
class Driver implements TransferDriver {
  readonly flights: Transfer[] = [];
  #listener: EndListener = () => {};

  nowUs(): number {
    return 0;
  }

  submit(jobs: IssuedJobs): void {
    for (let job = jobs.nextJob(); job !== 0; job = jobs.nextJob()) this.flights.push(jobs.transfer(job));
  }

  onEnd(listener: EndListener): void {
    this.#listener = listener;
  }

  endOne(): void {
    const { job } = this.flights.pop() as Transfer;
    this.#listener({
      job,
      outcome: Outcome.LOADED,
      digestLo: 1,
      digestHi: 1,
      reason: '',
    } satisfies Completion);
  }
}

function world() {
  const manager = new KVManager({ unitBytes: [1], hbm: { capacityBytes: 4 }, ddr: { capacityBytes: 8 } });
  const driver = new Driver();
  const carrier = new JobCarrier(manager, driver);
  const settled: number[] = [];
  manager.listen({
    jobsIssued: () => carrier.submit(),
    settled: ({ id }) => settled.push(id),
  });
  return { manager, driver, carrier, settled };
}

const keys = Uint32Array.of(1, 0, 0, 0, 2, 0, 0, 0);

it('jobs reach the driver in the call that issues them, for every caller', () => {
  const { manager, driver } = world();
  const sequence = manager.open(keys, 2, 0);
  manager.allocate(sequence, 0, 2, 0);
  manager.seal(sequence, 0, 2, keys, 0, 16, 0);
  expect(driver.flights.length).toBe(2);
  driver.endOne();
  driver.endOne();
  manager.release(sequence, 0);
  manager.evict(0, 1, 0);
  expect(driver.flights.map(({ kind }) => kind)).toEqual(['move']);
});

it('a sequence is told of once, when its last block has come, in whatever order ends come', () => {
  const { manager, driver, settled } = world();
  const sequence = manager.open(keys, 2, 0);
  manager.allocate(sequence, 0, 2, 0);
  manager.seal(sequence, 0, 2, keys, 0, 16, 0);
  driver.endOne();
  expect(settled).toEqual([]);
  driver.endOne();
  expect(settled).toEqual([sequence.id]);
});

it('what is held goes when it is resumed; ends are carried back meanwhile', () => {
  const { manager, driver, carrier } = world();
  const sequence = manager.open(keys, 2, 0);
  manager.allocate(sequence, 0, 2, 0);
  manager.seal(sequence, 0, 1, keys, 0, 16, 0);
  carrier.hold();
  manager.seal(sequence, 1, 2, keys, 4, 16, 0);
  expect(driver.flights.length).toBe(1);
  driver.endOne();
  expect(sequence.readyPrefix()).toBe(1);
  carrier.resume();
  driver.endOne();
  expect(sequence.readyPrefix()).toBe(2);
  expect(manager.inspect.jobsInFlight).toBe(0);
});
