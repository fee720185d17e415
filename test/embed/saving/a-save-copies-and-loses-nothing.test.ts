/**
 * A slice of the save campaign (`npm run campaign -- save`), and that it finds the two ways in which a save would lose blocks:
 * moving them down, and trusting a disk's word.
 */

import { describe, expect, it } from 'vitest';
import { saveCampaign } from './campaign.ts';

const seed = 71;

describe(`lives that are saved (seed ${seed})`, () => {
  it('lose nothing, move nothing and find at the next start what the save said', async () => {
    const report = await saveCampaign(12, { seed, devices: false });
    expect(report.faults).toEqual([]);
    expect(report).toMatchObject({ runs: 12, killed: 7 });
    expect(report.refused).toBeGreaterThan(0);
    expect(report.durable).toBeGreaterThan(0);
  });

  it('with a device keep what lies in HBM where it lies', async () => {
    const report = await saveCampaign(1, { seed, devices: true });
    expect(report.faults).toEqual([]);
  });

  it.each(['moving', 'trusting'] as const)('are found wanting where the save is %s', async (control) => {
    const report = await saveCampaign(6, { seed, devices: false, control });
    expect(report.faults.length).toBeGreaterThan(0);
  });
});
