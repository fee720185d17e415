/** Example servers in processes of their own, so that one can be killed. */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { portOfOurOwn } from '../../ports.ts';

const program = join(import.meta.dirname, '../../../examples/server/main.ts');

export class ServerProcess implements AsyncDisposable {
  readonly url: string;
  readonly args: readonly string[];
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, url: string, args: readonly string[]) {
    this.#child = child;
    this.url = url;
    this.args = args;
  }

  /** @param wanted the port of a server that was killed; without it one that stays free after a kill */
  static async start(hbmMib: number, wanted?: number): Promise<ServerProcess> {
    const port = wanted ?? (await portOfOurOwn());
    const args = [
      '--operator-port',
      '0',
      '--hbm-mib',
      String(hbmMib),
      '--ddr-mib',
      '0',
      '--max-sequences',
      '32',
      '--max-waiting',
      '4096',
    ];
    const child = spawn(process.execPath, [program, '--port', String(port), ...args], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let said = '';
    const url = await new Promise<string>((resolve, reject) => {
      const see = (data: Buffer): void => {
        said += data.toString();
        const found = /Listening on (\S+)/.exec(said)?.[1];
        if (found !== undefined) resolve(found);
      };
      child.stdout?.on('data', see);
      child.stderr?.on('data', see);
      child.once('exit', (code) => reject(new Error(`the server ended with ${code}: ${said.slice(-2000)}`)));
    });
    return new ServerProcess(child, url, args);
  }

  /** As the kernel ends a process: nothing is said. */
  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exited = once(this.#child, 'close');
    this.#child.kill('SIGKILL');
    await exited;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }
}
