/**
 * A proxy between a client and a server that does to their connection what networks and servers do: cut it, stall,
 * fall silent for ever, slow down, garble or cut short what comes back, or put in its own answer to writes.
 */

import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import type { SeededRandom } from '../../../src/testing/index.ts';

/**
 *   pass       everything as it is
 *   stall      nothing passes until the way is changed
 *   halfOpen   what the client sends is lost, and nothing comes back
 *   slow       a few kilobytes at a time
 *   garble     bytes of large answers are changed
 *   cut        the connection ends within an answer
 *   refuse     no connection is taken, and those there are end
 */
export const proxyWays = ['pass', 'stall', 'halfOpen', 'slow', 'garble', 'cut', 'refuse'] as const;
export type ProxyWay = (typeof proxyWays)[number];

/** Answers shorter than this are left whole by `garble`, so that the protocol itself stays in step. */
const LARGE_BYTES = 1024;

export class FaultProxy implements AsyncDisposable {
  readonly #target: number;
  readonly #random: SeededRandom;
  readonly #sockets: Set<Socket> = new Set();
  readonly #server: ReturnType<typeof createServer> = createServer((client) => this.#join(client));
  #way: ProxyWay = 'pass';
  #changed: (() => void)[] = [];
  port = 0;

  private constructor(target: number, random: SeededRandom) {
    this.#target = target;
    this.#random = random;
  }

  static async open(target: number, random: SeededRandom): Promise<FaultProxy> {
    const proxy = new FaultProxy(target, random);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    proxy.port = (proxy.#server.address() as AddressInfo).port;
    return proxy;
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  set way(way: ProxyWay) {
    this.#way = way;
    for (const changed of this.#changed.splice(0)) changed();
    if (way === 'refuse') this.cutAll();
  }

  /** Ends of connections that are open. */
  get openEnds(): number {
    return this.#sockets.size;
  }

  cutAll(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  #join(client: Socket): void {
    if (this.#way === 'refuse') {
      client.destroy();
      return;
    }
    const server = connect(this.#target, '127.0.0.1');
    for (const socket of [client, server]) {
      this.#sockets.add(socket);
      socket.setNoDelay(true);
      socket.on('error', () => {});
      socket.on('close', () => {
        this.#sockets.delete(socket);
        client.destroy();
        server.destroy();
      });
    }
    void this.#carry(client, server, false);
    void this.#carry(server, client, true);
  }

  async #carry(from: Socket, to: Socket, isAnswer: boolean): Promise<void> {
    try {
      for await (const chunk of from as AsyncIterable<Buffer>) {
        if (this.#way === 'halfOpen') continue;
        while (this.#way === 'stall') await new Promise<void>((resolve) => this.#changed.push(resolve));
        await this.#send(chunk, to, isAnswer);
      }
    } catch {
      // a connection that broke
    }
  }

  async #send(chunk: Buffer, to: Socket, isAnswer: boolean): Promise<void> {
    if (this.#way === 'cut' && isAnswer) {
      to.write(chunk.subarray(0, chunk.length >> 1));
      to.destroy();
      return;
    }
    if (this.#way === 'slow') {
      for (let at = 0; at < chunk.length; at += 4096) {
        to.write(chunk.subarray(at, at + 4096));
        await new Promise((resolve) => setTimeout(resolve, 2));
      }
      return;
    }
    if (this.#way === 'garble' && isAnswer && chunk.length >= LARGE_BYTES) {
      const changed = Buffer.from(chunk);
      const at = 64 + this.#random.below(chunk.length - 128);
      changed[at] ^= 1 + this.#random.below(255);
      to.write(changed);
      return;
    }
    if (!to.write(chunk)) await once(to, 'drain');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.way = 'refuse';
    this.#server.close();
    await once(this.#server, 'close');
  }
}
