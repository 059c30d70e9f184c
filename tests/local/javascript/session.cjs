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
    await call('set number', 'v4', 'set', {path: `${folder}/map/number`}, 5);
    await call('get number', 'v4', 'get', {path: `${folder}/map/number`});
    await call('list', 'v4', 'list', {path: `${folder}/map`, attributes: ['type']});
    await call('exists', 'v4', 'exists', {path: `${folder}/map`});
    await call('missing', 'v4', 'get', {path: `${folder}/map/nothing`});
    await call('batch', 'v4', 'executeBatch', {
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
    await call('create table', 'v4', 'create', {type: 'table', path, attributes: {dynamic: true, schema}});
    await call('mount', 'v4', 'mountTable', {path});
    const given = [{k: 1, v: 'one', a: {list: [1, null]}}, {k: 2, v: 'two', a: null}];
    await call('insert', 'v4', 'insertRows', {path}, given);
    await call('insert new', 'v4', 'insertRows', {path}, [{k: 3, v: 'three', a: []}]);
    await call('select', 'v4', 'selectRows', {query: `k, v, a from [${path}] where k < 3`});
    await call('insert long', 'v4', 'insertRows', {path}, [{k: 4, v: 'x'.repeat(1025)}]);
    await call('select long', 'v4', 'selectRows', {query: `v from [${path}] where k = 4`});
    await call('bad rows', 'v4', 'insertRows', {path}, [{k: 'no number'}]);
    await call('bad query', 'v4', 'selectRows', {query: `nothing from [${path}]`});
    await call('unmount', 'v4', 'unmountTable', {path});
    await call('insert unmounted', 'v4', 'insertRows', {path}, given);
}

// Whatever version it is asked for, the client asks for these under version 3.
async function old() {
    await call('read', 'v4', 'readTable', {path: `${folder}/dynamic`});
    await call('start', 'v3', 'startTransaction', {});
}

async function file() {
    await call('read file', 'v4', 'readFile', {path: `${folder}/file`});
}

tree()
    .then(rows)
    .then(old)
    .then(file)
    .then(() => process.stdout.write(JSON.stringify(seen)));
