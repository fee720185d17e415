/** Two runtimes on the software device, and a hand-off between them. */

import type { KVRuntime, KVRuntimeConfig } from '../../src/index.ts';
import type { HandoffOffer } from '../../src/serve/handoff/offer.ts';
import {
  type HandoffEnd,
  HandoffReceiver,
  type HandoffReceiverOptions,
} from '../../src/serve/handoff/receiver.ts';
import { HandoffSender, type HandoffSenderOptions } from '../../src/serve/handoff/sender.ts';
import { type TransferParams, transferAnswer, transferWish } from '../../src/serve/handoff/transferParams.ts';
import { blocks, openRuntime, prompt, tenant } from '../embed/liveRuntime.ts';

/** Long beside anything that a busy machine does: nothing here succeeds by a time-out. */
export const patient: HandoffReceiverOptions = {
  patienceMs: 60_000,
  deadlineMs: 240_000,
  connectMs: 60_000,
  roomMs: 60_000,
};

export class Pair implements AsyncDisposable {
  readonly prefill: KVRuntime;
  readonly decode: KVRuntime;
  readonly sender: HandoffSender;
  readonly receiver: HandoffReceiver;
  readonly notices: string[];

  private constructor(
    prefill: KVRuntime,
    decode: KVRuntime,
    sender: HandoffSender,
    receiver: HandoffReceiver,
    notices: string[],
  ) {
    this.prefill = prefill;
    this.decode = decode;
    this.sender = sender;
    this.receiver = receiver;
    this.notices = notices;
  }

  static async open({
    prefill = {},
    decode = {},
    sending = {},
    receiving = {},
  }: {
    readonly prefill?: Partial<KVRuntimeConfig>;
    readonly decode?: Partial<KVRuntimeConfig>;
    readonly sending?: HandoffSenderOptions;
    readonly receiving?: HandoffReceiverOptions;
  } = {}): Promise<Pair> {
    const one = await openRuntime(prefill);
    const other = await openRuntime({ ddrBytes: blocks(20), ...decode });
    const notices: string[] = [];
    const notice = (line: string): void => void notices.push(line);
    const sender = await HandoffSender.open(one, { listen: {}, notice, ...sending });
    const receiver = new HandoffReceiver(other, { ...patient, notice, ...receiving });
    return new Pair(one, other, sender, receiver, notices);
  }

  offer(seed: number): Promise<HandoffOffer> {
    return this.sender.offer(prompt(seed), { tenant });
  }

  receive(params: TransferParams, seed: number): Promise<HandoffEnd> {
    return this.receiver.receive(params, prompt(seed), { tenant });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.receiver.close();
    await this.sender.close();
    await this.prefill.close();
    await this.decode.close();
  }
}

/** The reference as it comes back through a proxy: by way of JSON. */
export function passedOn({ reference }: HandoffOffer): TransferParams {
  const wish = transferWish(JSON.parse(JSON.stringify(transferAnswer(reference, 'engine'))));
  if (wish.kind !== 'decode') throw new Error(`a reference came back as ${wish.kind}`);
  return wish.params;
}
