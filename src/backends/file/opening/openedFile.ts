/** What opening a tier's files asks for and gives. */

import type { Libc } from '../../posix/index.ts';
import type { FileStoreSettings } from '../fileStoreOptions.ts';
import type { DataFile, DirectoryOps, WrapFile } from '../io/dataFile.ts';
import type { Extents } from '../io/extents.ts';
import type { StagingPool } from '../io/stagingPool.ts';
import type { FileLayout } from '../record/fileLayout.ts';
import type { RecordFamily } from '../record/record.ts';
import type { Recovered } from '../restart/recovery.ts';
import type { WarmState } from '../restart/warmState.ts';

export interface OpenedFile {
  readonly file: DataFile;
  readonly extents: Extents;
  readonly family: RecordFamily;
  readonly path: string;
  readonly facts: OpenFacts;
  /** Undefined when the store is to begin empty at each start. */
  readonly warm: WarmState | undefined;
  readonly recovered: Recovered | undefined;
  /** Nothing was there before. */
  readonly isNew: boolean;
  /** Closes the files and leaves the directory to others. Nothing may be in flight. */
  close(): Promise<void>;
}

/** What the system granted, for `describe`. */
export interface OpenFacts {
  readonly mode: 'direct' | 'buffered';
  /** Why it is buffered, where direct I/O was wanted. */
  readonly modeReason: string;
  /** How disk space is set aside. */
  readonly space: 'fallocate' | 'sparse';
  readonly spaceReason: string;
  readonly filesystem: string;
}

export interface OpenRequest {
  readonly dir: string;
  readonly layout: FileLayout;
  readonly settings: FileStoreSettings;
  readonly staging: StagingPool;
  /** The C library, or why there is none. */
  readonly libc: Libc | string;
  readonly wrapFile: WrapFile;
  readonly wrapDirectory: (ops: DirectoryOps) => DirectoryOps;
}
