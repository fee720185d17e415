/** A prefill server in a process of its own, which is killed without warning and begins again at the same ports. */

import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const main = join(import.meta.dirname, '../../examples/server/main.ts');

export class PrefillServer implements AsyncDisposable {
  readonly #args: readonly string[];
  readonly #port: number;
  readonly #logsAt: string;
  #begun = 0;
  #child: ChildProcess | undefined;
  kills = 0;

  private constructor(args: readonly string[], port: number, logsAt: string) {
    this.#args = args;
    this.#port = port;
    this.#logsAt = logsAt;
  }

  /** Fulfilled when it answers. @param logsAt its decision logs lie there, each with a number behind it */
  static async start(port: number, args: readonly string[], logsAt: string): Promise<PrefillServer> {
    const server = new PrefillServer(
      ['--port', String(port), '--operator-port', '0', '--role', 'prefill', ...args],
      port,
      logsAt,
    );
    server.begin();
    await server.ready();
    return server;
  }

  get address(): string {
    return `127.0.0.1:${this.#port}`;
  }

  begin(): void {
    const args = [main, ...this.#args, '--log', `${this.#logsAt}${++this.#begun}`];
    this.#child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit'] });
  }

  async ready(): Promise<void> {
    for (;;) {
      if (this.#child === undefined || this.#child.exitCode !== null)
        throw new Error('the prefill server has ended');
      const isUp = await fetch(`http://${this.address}/health`).then(
        ({ ok }) => ok,
        () => false,
      );
      if (isUp) return;
      await sleep(50);
    }
  }

  /** Ends it at once, whatever it does. */
  async kill(): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once('close', resolve));
    child.kill('SIGKILL');
    await ended;
    this.kills++;
  }

  /** Ends it as a person does. @returns the log of the process that ended, which is whole */
  async stop(): Promise<string> {
    const child = this.#child;
    if (child !== undefined && child.exitCode === null && child.signalCode === null) {
      const ended = new Promise((resolve) => child.once('close', resolve));
      child.kill('SIGTERM');
      await ended;
    }
    return `${this.#logsAt}${this.#begun}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
    this.#child = undefined;
  }
}
