// One session of the official JavaScript client against a proxy: prints what each call gave as JSON.
'use strict';

const yt = require('@ytsaurus/javascript-wrapper')();

const [proxy, folder] = process.argv.slice(2);
yt.setup.setGlobalOption('proxy', proxy);
yt.setup.setGlobalOption('secure', false);

// The client gives flags of formats as strings.
const plainText = {$value: 'json', $attributes: {encode_utf8: 'false'}};
const seen = {};

async function call(name, version, command, parameters, data) {
    try {
        seen[name] = await yt[version][command](parameters, data);
    } catch (error) {
        seen[name] = {error};
    }
    return seen[name];
}

async function tree() {
    await call('create', 'v4', 'create', {type: 'map_node', path: `${folder}/map`});
    await call('set', 'v4', 'set', {path: `${folder}/map/text`, input_format: plainText}, 'текст');
    await call('get', 'v4', 'get', {path: `${folder}/map/text`, output_format: plainText});
    await call('set old', 'v3', 'set', {path: `${folder}/map/number`}, 5);
    await call('get old', 'v3', 'get', {path: `${folder}/map/number`});
    await call('list', 'v3', 'list', {path: `${folder}/map`, attributes: ['type']});
    await call('exists', 'v3', 'exists', {path: `${folder}/map`});
    await call('missing', 'v3', 'get', {path: `${folder}/map/nothing`});
    await call('batch', 'v3', 'executeBatch', {
        requests: [
            {command: 'get', parameters: {path: `${folder}/map/number`}},
            {command: 'get', parameters: {path: `${folder}/map/nothing`}},
        ],
    });
}

async function rows() {
    const path = `${folder}/dynamic`;
    const schema = [
        {name: 'k', type: 'int64', sort_order: 'ascending'},
        {name: 'v', type: 'string'},
        {name: 'a', type: 'any'},
    ];
    await call('create table', 'v3', 'create', {type: 'table', path, attributes: {dynamic: true, schema}});
    await call('mount', 'v3', 'mountTable', {path});
    const given = [{k: 1, v: 'one', a: {list: [1, null]}}, {k: 2, v: 'two', a: null}];
    await call('insert', 'v3', 'insertRows', {path}, given);
    await call('insert new', 'v4', 'insertRows', {path}, [{k: 3, v: 'three', a: []}]);
    await call('select', 'v3', 'selectRows', {query: `k, v, a from [${path}] where k < 3`});
    await call('insert long', 'v3', 'insertRows', {path}, [{k: 4, v: 'x'.repeat(1025)}]);
    await call('select long', 'v3', 'selectRows', {query: `v from [${path}] where k = 4`});
    await call('bad rows', 'v3', 'insertRows', {path}, [{k: 'no number'}]);
    await call('bad query', 'v3', 'selectRows', {query: `nothing from [${path}]`});
    await call('unmount', 'v3', 'unmountTable', {path});
    await call('insert unmounted', 'v3', 'insertRows', {path}, given);
}

async function tables() {
    const path = `${folder}/static`;
    await call('create static', 'v3', 'create', {type: 'table', path});
    await call('write', 'v3', 'writeTable', {path}, [{a: 1}, {a: 2, b: 'x'}]);
    await call('read', 'v3', 'readTable', {path});
    await call('read part', 'v4', 'readTable', {path: `${path}{a}[#1:]`});
}

async function transactions() {
    const path = `${folder}/map/inside`;
    const kept = await call('start', 'v3', 'startTransaction', {timeout: 30000});
    await call('set inside', 'v3', 'set', {path, transaction_id: kept}, 1);
    await call('exists outside', 'v3', 'exists', {path});
    await call('ping', 'v3', 'pingTransaction', {transaction_id: kept});
    await call('commit', 'v3', 'commitTransaction', {transaction_id: kept});
    await call('exists after', 'v3', 'exists', {path});
    const dropped = await call('start other', 'v3', 'startTransaction', {});
    await call('remove inside', 'v3', 'remove', {path, transaction_id: dropped});
    await call('abort', 'v3', 'abortTransaction', {transaction_id: dropped});
    await call('exists still', 'v3', 'exists', {path});
    await call('commit aborted', 'v3', 'commitTransaction', {transaction_id: dropped});
}

async function file() {
    await call('read file', 'v3', 'readFile', {path: `${folder}/file`});
}

tree()
    .then(rows)
    .then(tables)
    .then(transactions)
    .then(file)
    .then(() => process.stdout.write(JSON.stringify(seen)));
