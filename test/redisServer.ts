/** A Redis server of a test's own, on a free port, without persistence: a kill loses all that it had. */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { portOfOurOwn } from './ports.ts';

/** Whether redis-server is here; where it is not, the run says so at its end. */
export const hasRedis: boolean = spawnSync('redis-server', ['--version']).status === 0;
if (!hasRedis) console.warn('SKIPPED: redis-server is not here (apt-get install -y redis-server)');

export class RedisServer {
  readonly port: number;
  readonly #password: string;
  #process: ChildProcess | undefined;

  private constructor(port: number, password: string) {
    this.port = port;
    this.#password = password;
  }

  static async start(password: string = ''): Promise<RedisServer> {
    const server = new RedisServer(await portOfOurOwn(), password);
    await server.begin();
    return server;
  }

  get url(): string {
    return `redis://${this.#password === '' ? '' : `:${this.#password}@`}127.0.0.1:${this.port}`;
  }

  client(): Redis {
    return new Redis(this.url, { maxRetriesPerRequest: null });
  }

  /** Begins, on the same port after a kill, and answers. */
  async begin(): Promise<void> {
    const secret = this.#password === '' ? [] : ['--requirepass', this.#password];
    const args = [
      '--port',
      String(this.port),
      '--bind',
      '127.0.0.1',
      '--save',
      '',
      '--appendonly',
      'no',
      ...secret,
    ];
    this.#process = spawn('redis-server', args, { stdio: 'ignore' });
    const client = this.client();
    client.on('error', () => {});
    await client.ping();
    client.disconnect();
  }

  /** Ends it without warning. */
  async kill(): Promise<void> {
    const child = this.#process;
    this.#process = undefined;
    if (child === undefined || child.exitCode !== null) return;
    const ended = new Promise((resolve) => child.once('close', resolve));
    child.kill('SIGKILL');
    await ended;
    await sleep(0);
  }
}
