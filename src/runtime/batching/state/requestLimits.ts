/** Which requests are taken, and at how many tokens each ends at the latest. */

import { requireInteger, TierKVError } from '../../errors.ts';
import type { ResolvedSchedulerConfig } from '../config.ts';
import type { KVPort } from '../kvPort.ts';
import type { ServingRequest } from './request.ts';

/** @throws TKV_CONFIG naming the field that is out of range */
export function checkRequest(request: ServingRequest): void {
  requireInteger('promptTokens', request.promptTokens, 1);
  requireInteger('maxOutputTokens', request.maxOutputTokens, 0);
  const { priority = 0, arrivalUs = 0, owner = 0 } = request;
  requireInteger('priority', priority, Number.MIN_SAFE_INTEGER);
  requireInteger('arrivalUs', arrivalUs, 0);
  requireInteger('owner', owner, 0, 2 ** 16);
}

/**
 * Known tokens at which the request ends: its own limit, the model's, or what HBM holds. The KV of the last
 * one is never computed, so HBM may hold one token less.
 * @throws TKV_CAPACITY for a prompt that can never run
 */
export function limitTokens(
  request: ServingRequest,
  { maxModelTokens }: ResolvedSchedulerConfig,
  { capacityBlocks, blockTokens }: KVPort,
): number {
  const ofModel = maxModelTokens > 0 ? maxModelTokens : Number.MAX_SAFE_INTEGER;
  const most = Math.min(ofModel, capacityBlocks * blockTokens + 1);
  const { promptTokens, maxOutputTokens } = request;
  if (promptTokens < most) return Math.min(promptTokens + Math.max(maxOutputTokens, 1), most);
  const bound = most === ofModel ? 'maxModelTokens' : "HBM's capacity";
  throw new TierKVError(
    'TKV_CAPACITY',
    `promptTokens is ${promptTokens}, but at most ${most - 1} can run. Shorten it, or raise ${bound}.`,
    { field: 'promptTokens' },
  );
}
